"""`twister2deepnet.deepnet.io`: DeepNet's modules."""
