"""Trials: their queue, their gangs, their ends, and what they report."""
