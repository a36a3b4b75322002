"""Overviews: one metric of many trials over a range of batches, read from the stored blocks in a few queries.

Where thousands of rows are drawn on a hundred pixels, their extremes are all that can be seen. Rows are read only
behind the last block, and where the range is so short that blocks would be coarse; of them only the one value.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, case, column, func, null, select, values
from sqlalchemy.orm import Session

from trek.control.metrics.downsampling import Extremes, num_buckets
from trek.control.metrics.metric_blocks import BLOCK_ROWS
from trek.control.tables import MetricBlockTable, MetricTable
from trek.errors import InputError

Point = tuple[int, float | None]
"""Batches and a value, or None where it is not finite."""
ROW_BUDGET = 100_000
"""How many rows an answer reads at most instead of blocks."""
ROWS = -1
"""The level below the finest blocks: single rows."""
MOST_SMOOTHED_ROWS = 2_000_000
"""How many rows an answer reads at most to smooth them."""
_TRIALS_PER_QUERY = 500
_ABSENT = object()
_LAST = 2**62


@dataclass(frozen=True)
class Extent:
    """Batches from `first` to `last`, both included."""

    first: int = 0
    last: int = _LAST


WHOLE = Extent()


@dataclass
class Overview:
    """The points of one trial to draw, and how many values there are not finite."""

    points: list[Point] = field(default_factory=list)
    num_undefined: int = 0


def overviews(
    session: Session,
    trial_ids: Sequence[int],
    group: str,
    metric: str,
    *,
    max_points: int,
    extent: Extent = WHOLE,
    smoothing: float = 0.0,
) -> dict[int, Overview]:
    """The points to draw by trial, in order, every extreme included; at most about `max_points` of each.

    Points may lie a little outside of `extent`, so that lines lead to its edges. Values are smoothed over every row
    from the first on, so that each is the same in any extent.
    """
    found = {trial_id: Overview() for trial_id in trial_ids}
    if smoothing:
        _fill_smoothed(found, _Series(session, group, metric, Extent(last=extent.last)), smoothing, first=extent.first)
    else:
        _fill(found, _Series(session, group, metric, extent), max_points=max_points)
    for one in found.values():
        one.points = thinned(one.points, max_points=max_points)
    return found


def _fill(found: Mapping[int, Overview], series: _Series, *, max_points: int) -> None:
    trial_ids = list(found)
    levels = chosen_levels(
        series.counts(trial_ids),
        wanted=num_buckets(max_points=max_points, num_metrics=1),
        max_rows=max(max_points, ROW_BUDGET // max(len(trial_ids), 1)),
    )
    ends = dict.fromkeys(trial_ids, series.extent.first - 1) | series.starts(levels)
    for level in reversed(range(len(BLOCK_ROWS))):
        behind = {trial_id: ends[trial_id] for trial_id in trial_ids if levels.get(trial_id, ROWS) >= level}
        for trial_id, last, extremes in series.blocks(behind, level=level):
            ends[trial_id] = last
            if series.metric in extremes:
                known = Extremes(*extremes[series.metric])
                found[trial_id].points += sorted(known.points(), key=_batches)
                found[trial_id].num_undefined += known.num_undefined
    for trial_id, batches, value in series.rows(ends):
        found[trial_id].points.append((batches, value))
        found[trial_id].num_undefined += value is None


def _fill_smoothed(found: Mapping[int, Overview], series: _Series, weight: float, *, first: int) -> None:
    num_rows = series.num_rows(list(found))
    if num_rows > MOST_SMOOTHED_ROWS:
        raise InputError(
            f"smoothing would read {num_rows:,} rows; at most {MOST_SMOOTHED_ROWS:,} are read for one answer. "
            "Choose fewer trials, a shorter range, or no smoothing."
        )
    for trial_id, rows in itertools.groupby(series.rows(dict.fromkeys(found, -1)), key=lambda row: row[0]):
        points = list(smoothed(((batches, value) for _, batches, value in rows), weight=weight))
        inside = points[max(bisect.bisect_left(points, first, key=_batches) - 1, 0) :]
        found[trial_id].points = inside
        found[trial_id].num_undefined = sum(value is None for _, value in inside)


def smoothed(points: Iterable[Point], *, weight: float) -> Iterator[Point]:
    """The exponential moving average, without the bias of its beginning; values that are not finite stay gaps. Pure."""
    total = share = 0.0
    for batches, value in points:
        if value is None:
            yield batches, None
            continue
        total = total * weight + value * (1 - weight)
        share = share * weight + (1 - weight)
        yield batches, total / share


def chosen_levels(counts: Mapping[int, Mapping[int, int]], *, wanted: int, max_rows: int) -> dict[int, int]:
    """The level to read of each trial: the coarsest that has enough blocks, else rows if they are few. Pure."""
    found: dict[int, int] = {}
    for trial_id, blocks in counts.items():
        fine = max((level for level, count in blocks.items() if count >= wanted), default=None)
        are_few = blocks.get(0, 0) * BLOCK_ROWS[0] <= max_rows
        found[trial_id] = fine if fine is not None else ROWS if are_few else 0
    return found


def thinned(points: Sequence[Point], *, max_points: int) -> list[Point]:
    """At most about `max_points`: first, last, and of equally many points each the extremes and a gap. Pure."""
    if len(points) <= max_points:
        return list(points)
    buckets = num_buckets(max_points=max_points, num_metrics=1)
    kept = {points[0], points[-1]}
    for at in range(buckets):
        kept |= _to_draw(points[at * len(points) // buckets : (at + 1) * len(points) // buckets])
    return sorted(kept, key=_batches)


def _to_draw(points: Sequence[Point]) -> set[Point]:
    finite = [(value, batches) for batches, value in points if value is not None]
    gap = next((point for point in points if point[1] is None), None)
    low, high = min(finite, default=None), max(finite, default=None, key=_value)
    return {(one[1], one[0]) for one in (low, high) if one} | ({gap} if gap else set())


def _value(pair: tuple[float, int]) -> float:
    return pair[0]


def _batches(point: Point) -> int:
    return point[0]


@dataclass(frozen=True)
class _Series:
    """The stored series of one metric, by trial."""

    session: Session
    group: str
    metric: str
    extent: Extent

    def counts(self, trial_ids: Sequence[int]) -> dict[int, dict[int, int]]:
        """How many blocks of each level begin in the extent, by trial."""
        found: dict[int, dict[int, int]] = {}
        table = MetricBlockTable
        for part in _parts(trial_ids):
            query = select(table.trial_id, table.level, func.count()).where(
                table.group == self.group, table.trial_id.in_(part), *self._begun()
            )
            for trial_id, level, count in self.session.execute(query.group_by(table.trial_id, table.level)):
                found.setdefault(trial_id, {})[level] = count
        return found

    def starts(self, levels: Mapping[int, int]) -> dict[int, int]:
        """Behind which batches to read blocks, by trial: the block in which the extent begins is the first."""
        found: dict[int, int] = {}
        for level in set(levels.values()) - {ROWS} if self.extent != WHOLE else ():
            table = MetricBlockTable
            for ends in _ends({trial_id: 0 for trial_id, one in levels.items() if one == level}):
                owned = (table.trial_id == ends.c.trial_id, table.group == self.group, table.level == level)
                start = select(func.max(table.first)).where(*owned, table.first <= self.extent.first)
                for trial_id, first in self.session.execute(select(ends.c.trial_id, start.scalar_subquery())):
                    found |= {trial_id: first - 1} if first is not None else {}
        return found

    def blocks(self, after: Mapping[int, int], *, level: int) -> Iterator[tuple[int, int, dict[str, Any]]]:
        """Trial, last batches and extremes of the blocks of a level that begin behind `after`, in order by trial."""
        table = MetricBlockTable
        for ends in _ends(after):
            query = select(table.trial_id, table.last, table.extremes).join(ends, table.trial_id == ends.c.trial_id)
            query = query.where(
                table.group == self.group,
                table.level == level,
                table.first > ends.c.last,
                table.first <= self.extent.last,
            )
            yield from self.session.execute(query.order_by(table.trial_id, table.first))

    def num_rows(self, trial_ids: Sequence[int]) -> int:
        """How many rows these trials have up to the extent's end."""
        table, total = MetricTable, 0
        for part in _parts(trial_ids):
            where = (table.trial_id.in_(part), table.group == self.group, table.batches <= self.extent.last)
            total += self.session.scalar(select(func.count()).select_from(table).where(*where)) or 0
        return total

    def rows(self, after: Mapping[int, int]) -> Iterator[tuple[int, int, float | None]]:
        """Trial, batches and value (None: not finite) of the rows with the metric behind `after`, in order by trial."""
        table = MetricTable
        is_plain = not set(self.metric) & set('"\\')  # databases disagree about quoting the others
        value = table.metrics[self.metric].as_float() if is_plain else null()
        # The whole row says whether the metric is missing in it or not finite.
        row = case((value.is_(None), table.metrics))
        for ends in _ends(after):
            query = select(table.trial_id, table.batches, value, row).join(ends, table.trial_id == ends.c.trial_id)
            query = query.where(
                table.group == self.group, table.batches > ends.c.last, table.batches <= self.extent.last
            )
            for trial_id, batches, found, whole in self.session.execute(query.order_by(table.trial_id, table.batches)):
                one = found if whole is None else whole.get(self.metric, _ABSENT)
                if one is None or isinstance(one, int | float):
                    yield trial_id, batches, None if one is None else float(one)

    def _begun(self) -> list[ColumnElement[bool]]:
        if self.extent == WHOLE:
            return []
        return [MetricBlockTable.first >= self.extent.first, MetricBlockTable.first <= self.extent.last]


def _ends(after: Mapping[int, int]) -> Iterator[Any]:
    """Tables of trials and the batches up to which they have been read."""
    for part in _parts(list(after)):
        table = values(column("trial_id", BigInteger), column("last", BigInteger), name="ends")
        yield table.data([(trial_id, after[trial_id]) for trial_id in part]).cte("ends")


def _parts(trial_ids: Sequence[int]) -> Iterable[Sequence[int]]:
    for start in range(0, len(trial_ids), _TRIALS_PER_QUERY):
        yield trial_ids[start : start + _TRIALS_PER_QUERY]
