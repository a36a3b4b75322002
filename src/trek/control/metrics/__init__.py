"""Long series of metrics, stored so that they can be read quickly."""
