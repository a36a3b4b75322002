"""`twister2.tset.fn`: functions of TSets."""
