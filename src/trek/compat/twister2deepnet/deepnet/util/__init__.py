"""`twister2deepnet.deepnet.util`: DeepNet's modules."""
