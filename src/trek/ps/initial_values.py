"""The value of a row that was never updated: a function of the seed, the table's name, the id and the column.

So it is the same for any number of servers and any order of arrival, and reading such a row needs no memory.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from trek.ps.compiled import compiled
from trek.ps.distinct_ids import Floats
from trek.ps.id_index import Ids, Rows, mix

_CODES = {"constant": 0, "uniform": 1, "normal": 2}
_COLUMN_STEP = 0x9E3779B97F4A7C15


class Initial(BaseModel):
    """How new rows begin: `uniform` from `low` to `high`, `normal` with `mean` and `std`, or `constant` `value`."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    kind: Literal["uniform", "normal", "constant", "zeros"] = "uniform"
    low: float = -0.05
    high: float = 0.05
    mean: float = 0.0
    std: float = Field(default=0.01, ge=0)
    value: float = 0.0

    def fill(self, rows: Floats, ids: Ids, *, key: int) -> None:
        """Set `rows[i]` to the initial value of `ids[i]`; `key` comes from `key_of`."""
        first, second = self._parameters()
        _fill(rows, ids, np.uint64(key), _CODES.get(self.kind, 0), np.float32(first), np.float32(second))

    def fill_missing(self, out: Floats, ids: Ids, found: Rows, *, key: int) -> None:
        """Set `out[i]` to the initial value of `ids[i]` where `found[i]` is negative."""
        missing = np.flatnonzero(found < 0)
        if len(missing) == len(ids):
            self.fill(out, ids, key=key)
        elif len(missing):
            rows = np.empty((len(missing), out.shape[1]), np.float32)
            self.fill(rows, ids[missing], key=key)
            out[missing] = rows

    def _parameters(self) -> tuple[float, float]:
        if self.kind == "uniform":
            return self.low, self.high - self.low
        if self.kind == "normal":
            return self.mean, self.std
        return (self.value if self.kind == "constant" else 0.0), 0.0


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
