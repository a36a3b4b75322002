"""Recorded runs of flows."""
