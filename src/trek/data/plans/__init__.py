"""What a Table is to compute: a tree of operations, and how each is carried out."""
