"""Lines that trials wrote: read, graded, searched."""
