"""Rows that cannot be shown, such as one with text that no JSON can hold: they never hide the other rows of a list.

New values are checked before they are stored (`trek.client.wire_values`); this is for those of older versions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from pydantic import BaseModel

from trek.errors import TrekError

R = TypeVar("R")
T = TypeVar("T", bound=BaseModel)


def shown(row: R, show: Callable[[R], T], *, instead: Callable[[R, str], T]) -> T:
    """The row as `show` gives it; if that fails or cannot be sent as JSON, `instead` with the reason."""
    try:
        model = show(row)
        model.model_dump_json()
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError, TrekError) as error:
        return instead(row, _reason(error))
    return model


def each_shown(rows: Iterable[R], show: Callable[[R], T], *, instead: Callable[[R, str], T]) -> list[T]:
    """Every row as `shown` gives it."""
    return [shown(row, show, instead=instead) for row in rows]


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError) or "depth exceeded" in str(error):
        return "its stored values are nested too deeply. An admin can delete it."
    if isinstance(error, UnicodeError) or "surrogate" in str(error):
        return "its stored text is not valid Unicode. An admin can delete it."
    return f"its stored values are not valid ({type(error).__name__}). An admin can delete it."
