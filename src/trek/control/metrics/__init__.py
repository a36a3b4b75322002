"""Long series of metrics, kept and read quickly."""
