"""Updates of rows where they lie, for rules so simple that to copy the rows out and back is most of the work.

The result is that of `row_rules`, to the bit: whether this machine's torch rounds once or twice in `a + alpha * b` is
found out by a comparison.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import torch

from trek.ps.compiled import AHEAD, compiled, fused_multiply_add, prefetch
from trek.ps.distinct_ids import Floats
from trek.ps.id_index import Rows


def can_add_in_place(kind: str, group: Mapping[str, Any]) -> bool:
    """Whether a rule is just `row -= lr * gradient`, and this machine's torch rounds it in one of the known ways."""
    is_plain = kind == "SGD" and not any(group[name] for name in ("momentum", "weight_decay", "maximize"))
    return is_plain and _roundings() is not None


def add_rows(values: Floats, rows: Rows, block: Floats, *, alpha: float) -> None:
    """`values[rows] += alpha * block`, for distinct rows."""
    add = _add_fused if _roundings() == 1 else _add_rounded
    add(values, rows, block, np.float32(alpha))


@cache
def _roundings() -> int | None:
    """How often torch rounds in `a + alpha * b`; None if that is not the same everywhere."""
    generator = torch.Generator().manual_seed(0)
    start, block = torch.randn(2, 67, 33, generator=generator)
    expected = [start[:, :width].clone().add_(block[:, :width], alpha=-0.1) for width in (1, 8, 16, 33)]
    for roundings, add in ((1, _add_fused), (2, _add_rounded)):
        found = [start[:, : one.shape[1]].clone() for one in expected]
        for values in found:
            part = block[:, : values.shape[1]].contiguous().numpy()
            add(values.numpy(), np.arange(len(values), dtype=np.int32), part, np.float32(-0.1))
        if all(map(torch.equal, found, expected)):
            return roundings
    return None


@compiled
def _add_fused(values: Floats, rows: Rows, block: Floats, alpha: Any) -> None:
    for i in range(len(rows)):
        if i + AHEAD < len(rows):
            prefetch(values, rows[i + AHEAD])
        row, other = values[rows[i]], block[i]
        for j in range(len(other)):
            row[j] = fused_multiply_add(alpha, other[j], row[j])


@compiled
def _add_rounded(values: Floats, rows: Rows, block: Floats, alpha: Any) -> None:
    for i in range(len(rows)):
        if i + AHEAD < len(rows):
            prefetch(values, rows[i + AHEAD])
        row, other = values[rows[i]], block[i]
        for j in range(len(other)):
            row[j] += alpha * other[j]
