"""`twister2flow.twister2`: Twister2Flow's modules."""
