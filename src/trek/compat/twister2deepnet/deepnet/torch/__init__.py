"""`twister2deepnet.deepnet.torch`: DeepNet's modules."""
