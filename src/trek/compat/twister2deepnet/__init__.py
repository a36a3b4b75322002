"""DeepNet's names: data sets, files and mini-batches of Twister2's deep-learning scripts."""
