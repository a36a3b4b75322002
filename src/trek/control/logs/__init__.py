"""Log lines of trials: reading, levels, search."""
