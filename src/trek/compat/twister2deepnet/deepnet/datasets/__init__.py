"""`twister2deepnet.deepnet.datasets`: DeepNet's modules."""
