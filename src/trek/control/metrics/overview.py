"""Overviews: one metric of many trials over a range of batches, read from the stored blocks in a few queries.

Where thousands of rows are drawn on a hundred pixels, their extremes are all that can be seen. Rows are read only
behind the last block, and where the range is so short that blocks would be coarse; of them only the one value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, column, func, select, values
from sqlalchemy.orm import Session

from trek.control.metrics.downsampling import num_buckets
from trek.control.metrics.metric_blocks import BLOCK_ROWS
from trek.control.tables import MetricBlockTable, MetricTable

Point = tuple[int, float]
"""Batches and a value."""
ROW_BUDGET = 100_000
"""How many rows an answer reads at most instead of blocks."""
ROWS = -1
"""The level below the finest blocks: single rows."""
_TRIALS_PER_QUERY = 500
_LAST = 2**62


@dataclass(frozen=True)
class Extent:
    """Batches from `first` to `last`, both included."""

    first: int = 0
    last: int = _LAST


WHOLE = Extent()


def overviews(
    session: Session, trial_ids: Sequence[int], group: str, metric: str, *, max_points: int, extent: Extent = WHOLE
) -> dict[int, list[Point]]:
    """The points to draw by trial, in order, every extreme included; at most about `max_points` of each.

    Points may lie a little outside of `extent`, so that lines lead to its edges.
    """
    series = _Series(session, group, metric, extent)
    levels = chosen_levels(
        series.counts(trial_ids),
        wanted=num_buckets(max_points=max_points, num_metrics=1),
        max_rows=max(max_points, ROW_BUDGET // max(len(trial_ids), 1)),
    )
    points: dict[int, list[Point]] = {trial_id: [] for trial_id in trial_ids}
    ends = dict.fromkeys(trial_ids, extent.first - 1) | series.starts(levels)
    for level in reversed(range(len(BLOCK_ROWS))):
        behind = {trial_id: ends[trial_id] for trial_id in trial_ids if levels.get(trial_id, ROWS) >= level}
        for trial_id, last, extremes in series.blocks(behind, level=level):
            ends[trial_id] = last
            if metric in extremes:
                low, low_at, high, high_at = extremes[metric]
                points[trial_id] += sorted({(low_at, low), (high_at, high)})
    for trial_id, batches, value in series.rows(ends):
        points[trial_id].append((batches, value))
    return {trial_id: thinned(found, max_points=max_points) for trial_id, found in points.items()}


def chosen_levels(counts: Mapping[int, Mapping[int, int]], *, wanted: int, max_rows: int) -> dict[int, int]:
    """The level to read of each trial: the coarsest that has enough blocks, else rows if they are few. Pure."""
    found: dict[int, int] = {}
    for trial_id, blocks in counts.items():
        fine = max((level for level, count in blocks.items() if count >= wanted), default=None)
        are_few = blocks.get(0, 0) * BLOCK_ROWS[0] <= max_rows
        found[trial_id] = fine if fine is not None else ROWS if are_few else 0
    return found


def thinned(points: Sequence[Point], *, max_points: int) -> list[Point]:
    """At most about `max_points` of them: the first, the last, and the extremes of equally many each. Pure."""
    if len(points) <= max_points:
        return list(points)
    buckets = num_buckets(max_points=max_points, num_metrics=1)
    kept = {points[0], points[-1]}
    for at in range(buckets):
        part = points[at * len(points) // buckets : (at + 1) * len(points) // buckets]
        kept |= {min(part, key=_value), max(part, key=_value)}
    return sorted(kept)


def _value(point: Point) -> float:
    return point[1]


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

    def rows(self, after: Mapping[int, int]) -> Iterator[tuple[int, int, float]]:
        """Trial, batches and value of the rows behind `after`, in order by trial."""
        table = MetricTable
        is_plain = not set(self.metric) & set('"\\')  # databases disagree about quoting the others
        value = table.metrics[self.metric].as_float() if is_plain else table.metrics
        for ends in _ends(after):
            query = select(table.trial_id, table.batches, value).join(ends, table.trial_id == ends.c.trial_id)
            query = query.where(
                table.group == self.group, table.batches > ends.c.last, table.batches <= self.extent.last
            )
            for trial_id, batches, found in self.session.execute(query.order_by(table.trial_id, table.batches)):
                one = found if is_plain else found.get(self.metric)
                if isinstance(one, int | float):
                    yield trial_id, batches, float(one)

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
