"""Trials: their queue, their gangs, their endings, and what they report."""
