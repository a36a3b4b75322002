"""Checks of the settings of elastic jobs, which come from configs and from other processes."""

from __future__ import annotations

from typing import Any

from trek.errors import InputError


def require_count(value: Any, name: str, *, least: int = 1) -> None:
    """Refuse what is not a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InputError(f"{name} must be a whole number of at least {least}, got {value!r}.")


def require_seconds(value: Any, name: str) -> None:
    """Refuse what is not a time to wait."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise InputError(f"{name} must be a number of seconds greater than 0, got {value!r}.")
