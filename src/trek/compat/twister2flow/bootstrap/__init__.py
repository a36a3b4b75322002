"""`twister2flow.bootstrap`: Twister2Flow's modules."""
