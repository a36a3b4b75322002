"""`twister2deepnet.deepnet`: DeepNet's modules."""
