"""Which points of a long series to show, so that no extreme is lost. Pure; rows are read by `metric_blocks`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Extremes = tuple[float, int, float, int]
"""The smallest value and the batches it was reported at, the largest value and its batches."""


@dataclass(frozen=True)
class Stretch:
    """Consecutive rows: where they begin and end, and the extremes of every metric in them."""

    first: int
    last: int
    num_rows: int
    extremes: Mapping[str, Extremes]


def stretch_of_rows(rows: Sequence[tuple[int, Mapping[str, float | None]]]) -> Stretch:
    """The stretch of consecutive rows. Values that are not finite are ignored; of equal extremes the first counts."""
    extremes: dict[str, list[Any]] = {}
    for batches, metrics in rows:
        for name, value in metrics.items():
            if value is None:
                continue
            known = extremes.get(name)
            if known is None:
                extremes[name] = [value, batches, value, batches]
            elif value < known[0]:
                known[0], known[1] = value, batches
            elif value > known[2]:
                known[2], known[3] = value, batches
    found = {name: (low, low_at, high, high_at) for name, (low, low_at, high, high_at) in extremes.items()}
    return Stretch(rows[0][0], rows[-1][0], len(rows), found)


def joined(stretches: Sequence[Stretch]) -> Stretch:
    """Consecutive stretches as one; of equal extremes the earlier counts."""
    extremes: dict[str, Extremes] = {}
    for stretch in stretches:
        for name, (low, low_at, high, high_at) in stretch.extremes.items():
            known = extremes.get(name)
            if known is not None:
                if known[0] <= low:
                    low, low_at = known[0], known[1]
                if known[2] >= high:
                    high, high_at = known[2], known[3]
            extremes[name] = (low, low_at, high, high_at)
    return Stretch(stretches[0].first, stretches[-1].last, sum(stretch.num_rows for stretch in stretches), extremes)


def num_buckets(*, max_points: int, num_metrics: int) -> int:
    """How many buckets fit: each may need a point for either extreme of every metric, besides the first and last."""
    return max((max_points - 2) // (2 * max(num_metrics, 1)), 1)


def chosen_points(stretches: Sequence[Stretch], *, max_points: int) -> list[int]:
    """Batches of the rows to show: first, last, and either extreme of every metric in buckets of equally many rows.

    At most `max_points` of them, unless even one bucket of all rows needs more.
    """
    if not stretches:
        return []
    names = {name for stretch in stretches for name in stretch.extremes}
    buckets = num_buckets(max_points=max_points, num_metrics=len(names))
    chosen = {stretches[0].first, stretches[-1].last}
    for bucket in _buckets(stretches, count=buckets):
        chosen |= {at for _, low_at, _, high_at in joined(bucket).extremes.values() for at in (low_at, high_at)}
    return sorted(chosen)


def _buckets(stretches: Sequence[Stretch], *, count: int) -> Iterable[list[Stretch]]:
    total = sum(stretch.num_rows for stretch in stretches)
    buckets: dict[int, list[Stretch]] = {}
    seen = 0
    for stretch in stretches:
        buckets.setdefault(seen * count // total, []).append(stretch)
        seen += stretch.num_rows
    return buckets.values()
