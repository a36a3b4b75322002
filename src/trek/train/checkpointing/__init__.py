"""Checkpoints: their form, writing, storage, keeping and loading."""
