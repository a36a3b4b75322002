"""Checkpoints: format, writing, storage, retention and loading."""
