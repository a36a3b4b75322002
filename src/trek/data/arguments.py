"""Checks of what callers pass to Table's operations: each gives one error that says what was expected."""

from __future__ import annotations

from typing import Any

from trek.errors import InputError


def require_callable(function: Any, verb: str) -> None:
    """Refuse what is not a function, and name the operation that needs one."""
    if not callable(function):
        remedy = ", or an expression such as trek.col('x') < 10" if verb == "filter" else ""
        raise InputError(f"{verb}() needs a function{remedy}, got {type(function).__name__} {function!r:.60}.")


def require_table(other: Any, verb: str) -> None:
    """Refuse what is not a Table."""
    from trek.data.table import Table

    if not isinstance(other, Table):
        raise InputError(f"{verb}() needs a Table, got {type(other).__name__}. Make one with Table.of(…).")


def positive(number: int, name: str) -> int:
    """`number`, which must be a whole number of at least 1."""
    if not hasattr(number, "__index__") or number < 1:
        raise InputError(f"{name} must be a whole number of at least 1, got {number!r}.")
    return number
