"""Runs of flows on record."""
