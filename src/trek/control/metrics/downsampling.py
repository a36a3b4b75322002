"""Which points of a long series to show, so that no extreme is lost. Pure; rows are read by `metric_blocks`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple


class Extremes(NamedTuple):
    """A summary of one metric in consecutive rows; batches say where. Stored blocks may lack the last two fields."""

    low: float | None
    """None if no value is finite."""
    low_at: int
    high: float | None
    high_at: int
    num_undefined: int = 0
    """Values that are not finite."""
    undefined_at: int = -1
    """The first of them."""

    def points(self) -> set[tuple[int, float | None]]:
        """Batches and values to draw: either extreme, and None where a value is not finite."""
        found = {(self.low_at, self.low), (self.high_at, self.high)} if self.low is not None else set()
        return found | ({(self.undefined_at, None)} if self.num_undefined else set())


@dataclass(frozen=True)
class Stretch:
    """Consecutive rows: where they begin and end, and the extremes of every metric in them."""

    first: int
    last: int
    num_rows: int
    extremes: Mapping[str, Extremes]


def stretch_of_rows(rows: Sequence[tuple[int, Mapping[str, float | None]]]) -> Stretch:
    """The stretch of consecutive rows. A value of None is not finite; the first of equal extremes counts."""
    extremes: dict[str, list[Any]] = {}
    for batches, metrics in rows:
        for name, value in metrics.items():
            known = extremes.get(name)
            if known is None:
                known = extremes[name] = [value, batches, value, batches, 0, -1]
            if value is None:
                known[4:] = known[4] + 1, batches if known[4] == 0 else known[5]
            elif known[0] is None:
                known[:4] = value, batches, value, batches
            elif value < known[0]:
                known[0], known[1] = value, batches
            elif value > known[2]:
                known[2], known[3] = value, batches
    found = {name: Extremes(*known) for name, known in extremes.items()}
    return Stretch(rows[0][0], rows[-1][0], len(rows), found)


def joined(stretches: Sequence[Stretch]) -> Stretch:
    """Consecutive stretches as one; of equal extremes the earlier counts."""
    extremes: dict[str, Extremes] = {}
    for stretch in stretches:
        for name, one in stretch.extremes.items():
            known = extremes.get(name)
            extremes[name] = one if known is None else _both(known, one)
    return Stretch(stretches[0].first, stretches[-1].last, sum(stretch.num_rows for stretch in stretches), extremes)


def _both(first: Extremes, second: Extremes) -> Extremes:
    low, high = first[:2], first[2:4]
    if second.low is not None and second.high is not None:
        low = second[:2] if first.low is None or second.low < first.low else low
        high = second[2:4] if first.high is None or second.high > first.high else high
    undefined_at = first.undefined_at if first.num_undefined else second.undefined_at
    return Extremes(*low, *high, first.num_undefined + second.num_undefined, undefined_at)


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
        chosen |= {at for one in joined(bucket).extremes.values() for at in (one.low_at, one.high_at)}
    return sorted(chosen)


def _buckets(stretches: Sequence[Stretch], *, count: int) -> Iterable[list[Stretch]]:
    total = sum(stretch.num_rows for stretch in stretches)
    buckets: dict[int, list[Stretch]] = {}
    seen = 0
    for stretch in stretches:
        buckets.setdefault(seen * count // total, []).append(stretch)
        seen += stretch.num_rows
    return buckets.values()
