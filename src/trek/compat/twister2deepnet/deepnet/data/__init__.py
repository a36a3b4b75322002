"""`twister2deepnet.deepnet.data`: DeepNet's modules."""
