"""Files from elsewhere into the cache, verified."""
