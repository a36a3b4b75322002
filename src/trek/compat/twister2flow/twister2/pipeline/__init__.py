"""`twister2flow.twister2.pipeline`: Twister2Flow's modules."""
