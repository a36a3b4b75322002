"""Experiments: creating, changing and deleting them, and the archives of their code."""
