"""`twister2flow.twister2.task`: Twister2Flow's modules."""
