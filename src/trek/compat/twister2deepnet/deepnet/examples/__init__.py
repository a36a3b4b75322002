"""`twister2deepnet.deepnet.examples`: DeepNet's modules."""
