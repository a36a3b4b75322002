"""`twister2.tset`: what TSets are made of."""
