"""Tables on disk, behind URLs and in shared memory; fingerprints of what made them."""
