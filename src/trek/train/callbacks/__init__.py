"""Hooks into a Trial's run."""
