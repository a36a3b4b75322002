"""Pages of lists: how a URL asks for one, and how the answer says that there may be another.

A cursor is where the previous page ended: the number its last row is ordered by, and a name where rows may share it.
Names are chosen by users, so a cursor is percent-encoded: a header may hold neither line ends nor most characters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Annotated, TypeVar
from urllib.parse import quote, unquote

from fastapi import Query, Response

from trek.errors import InputError

T = TypeVar("T")
Limit = Annotated[int, Query(ge=1, le=100_000, description="How many at the most.")]
Cursor = Annotated[
    str | None,
    Query(max_length=2000, description="The x-next-cursor of the previous page; omit it for the first page."),
]
HEADER = "x-next-cursor"


def tell_next(response: Response, found: Sequence[T], *, limit: int, cursor: Callable[[T], str]) -> None:
    """Set the header that says where the next page begins, if there may be one."""
    if len(found) == limit:
        response.headers[HEADER] = quote(cursor(found[-1]), safe=":")


def read_id(cursor: str | None) -> int | None:
    """A cursor that is an id."""
    if cursor is None:
        return None
    try:
        return int(cursor)
    except ValueError:
        raise _invalid_cursor(cursor) from None


def read_pair(cursor: str | None) -> tuple[float, str] | None:
    """A cursor that is a number and a name."""
    if cursor is None:
        return None
    number, colon, name = unquote(cursor).partition(":")
    try:
        value = float(number)
    except ValueError:
        raise _invalid_cursor(cursor) from None
    if not colon or not math.isfinite(value):
        raise _invalid_cursor(cursor)
    return value, name


def _invalid_cursor(cursor: str) -> InputError:
    return InputError(
        f"invalid cursor {cursor!r}. Use the {HEADER} of the previous page, or omit it for the first page."
    )
