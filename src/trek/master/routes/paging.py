"""Pages of lists: how an address asks for one, and how the answer says that there may be another.

A cursor is where the page before ended: the number its last row is ordered by, and for rows that share it, a name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Annotated, TypeVar

from fastapi import Query, Response

from trek.errors import InputError

T = TypeVar("T")
Limit = Annotated[int, Query(ge=1, le=100_000, description="How many at most.")]
Cursor = Annotated[
    str | None, Query(max_length=500, description="The x-next-cursor of the page before; without, the first page.")
]
HEADER = "x-next-cursor"


def tell_next(response: Response, found: Sequence[T], *, limit: int, cursor: Callable[[T], str]) -> None:
    """Say where the next page begins, if there may be one."""
    if len(found) == limit:
        response.headers[HEADER] = cursor(found[-1])


def read_id(cursor: str | None) -> int | None:
    """A cursor that is an id."""
    if cursor is None:
        return None
    try:
        return int(cursor)
    except ValueError:
        raise _no_cursor(cursor) from None


def read_pair(cursor: str | None) -> tuple[float, str] | None:
    """A cursor that is a number and a name."""
    if cursor is None:
        return None
    number, colon, name = cursor.partition(":")
    try:
        value = float(number)
    except ValueError:
        raise _no_cursor(cursor) from None
    if not colon or not math.isfinite(value):
        raise _no_cursor(cursor)
    return value, name


def _no_cursor(cursor: str) -> InputError:
    return InputError(f"{cursor!r} is no cursor. Give the {HEADER} of the page before, or none for the first page.")
