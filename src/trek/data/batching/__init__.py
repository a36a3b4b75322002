"""Tables as batches of tensors, in a global order of rows."""
