"""How the loops over ids and rows are compiled: by Numba, once, kept on disk, without holding Python's lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """`function` as native code; strict floating point, so that results do not depend on the machine's vectors."""
    return cast(Function, numba.njit(cache=True, nogil=True)(function))
