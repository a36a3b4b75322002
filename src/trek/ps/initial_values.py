"""The value of a row that was never updated: a function of the seed, the table's name, the id and the column.

So it is the same for any number of servers and any order of arrival, and reading such a row needs no memory.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np

from trek.ps.compiled import compiled
from trek.ps.distinct_ids import Floats
from trek.ps.id_index import Ids, Rows, mix
from trek.ps.table_spec import Initial

_CODES = {"constant": 0, "uniform": 1, "normal": 2}
_COLUMN_STEP = 0x9E3779B97F4A7C15


def fill(initial: Initial, rows: Floats, ids: Ids, *, key: int) -> None:
    """Set `rows[i]` to the initial value of `ids[i]`; `key` comes from `key_of`."""
    first, second = _parameters(initial)
    _fill(rows, ids, np.uint64(key), _CODES.get(initial.kind, 0), np.float32(first), np.float32(second))


def fill_missing(initial: Initial, out: Floats, ids: Ids, found: Rows, *, key: int) -> None:
    """Set `out[i]` to the initial value of `ids[i]` where `found[i]` is negative."""
    missing = np.flatnonzero(found < 0)
    if len(missing) == len(ids):
        fill(initial, out, ids, key=key)
    elif len(missing):
        rows = np.empty((len(missing), out.shape[1]), np.float32)
        fill(initial, rows, ids[missing], key=key)
        out[missing] = rows


def _parameters(initial: Initial) -> tuple[float, float]:
    if initial.kind == "uniform":
        return initial.low, initial.high - initial.low
    if initial.kind == "normal":
        return initial.mean, initial.std
    return (initial.value if initial.kind == "constant" else 0.0), 0.0


def key_of(table: str, *, seed: int) -> int:
    """The part of a row's initial value that all rows of a table share."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{table}".encode()).digest()[:8], "little")


@compiled
def _fill(rows: Floats, ids: Ids, key: Any, code: int, first: Any, second: Any) -> None:
    width = rows.shape[1]
    for i in range(len(ids)):
        state = mix(np.uint64(ids[i]) ^ key)
        if code == 0:
            for j in range(width):
                rows[i, j] = first
        elif code == 1:
            for j in range(width):
                bits = mix(state + np.uint64(j + 1) * np.uint64(_COLUMN_STEP))
                rows[i, j] = first + second * np.float32(bits >> np.uint64(40)) * np.float32(1.0 / (1 << 24))
        else:
            for j in range(0, width, 2):
                bits = mix(state + np.uint64(j + 1) * np.uint64(_COLUMN_STEP))
                # Two uniform numbers of 32 bits give two normal ones (Box and Muller).
                radius = math.sqrt(-2.0 * math.log((float(bits >> np.uint64(32)) + 0.5) / 4294967296.0))
                angle = 2.0 * math.pi * float(bits & np.uint64(0xFFFFFFFF)) / 4294967296.0
                rows[i, j] = first + second * np.float32(radius * math.cos(angle))
                if j + 1 < width:
                    rows[i, j + 1] = first + second * np.float32(radius * math.sin(angle))
