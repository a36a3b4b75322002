"""Checkpoints on storage and the registry of models."""
