"""Overviews: one metric of many trials over their batches, read from the stored blocks in a few queries.

Where thousands of rows are drawn on a hundred pixels, their extremes are all that can be seen. Rows are read only
behind the last block, and of them only the one value.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from trek.control.metrics.downsampling import num_buckets
from trek.control.tables import MetricBlockTable, MetricTable

Point = tuple[int, float]
"""Batches and a value."""
_TRIALS_PER_QUERY = 500


def overviews(
    session: Session, trial_ids: Sequence[int], group: str, metric: str, *, max_points: int
) -> dict[int, list[Point]]:
    """The points to draw by trial, in order, every extreme included; at most about `max_points` of each."""
    wanted = num_buckets(max_points=max_points, num_metrics=1)
    by_level: dict[int, list[int]] = {}
    for trial_id, level in _levels(session, trial_ids, group, wanted=wanted).items():
        by_level.setdefault(level, []).append(trial_id)
    points: dict[int, list[Point]] = {trial_id: [] for trial_id in trial_ids}
    ends: dict[int, int] = {}
    for level, chosen in by_level.items():
        for trial_id, last, extremes in _blocks(session, chosen, group, level=level):
            ends[trial_id] = last
            if metric in extremes:
                low, low_at, high, high_at = extremes[metric]
                points[trial_id] += sorted({(low_at, low), (high_at, high)})
    for trial_id in trial_ids:
        points[trial_id] += _rows(session, trial_id, group, metric, after=ends.get(trial_id, -1))
    return {trial_id: thinned(found, max_points=max_points) for trial_id, found in points.items()}


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


def _levels(session: Session, trial_ids: Sequence[int], group: str, *, wanted: int) -> dict[int, int]:
    """The coarsest level of each trial that has enough blocks, else its finest; trials without blocks are left out."""
    found: dict[int, int] = {}
    table = MetricBlockTable
    for part in _parts(trial_ids):
        counts = select(table.trial_id, table.level, func.count()).where(table.group == group, table.trial_id.in_(part))
        for trial_id, level, count in session.execute(counts.group_by(table.trial_id, table.level)):
            if level == 0 or count >= wanted:
                found[trial_id] = max(level, found.get(trial_id, 0))
    return found


def _blocks(
    session: Session, trial_ids: Sequence[int], group: str, *, level: int
) -> Iterable[tuple[int, int, dict[str, Any]]]:
    table = MetricBlockTable
    for part in _parts(trial_ids):
        query = select(table.trial_id, table.last, table.extremes).where(
            table.group == group, table.level == level, table.trial_id.in_(part)
        )
        yield from session.execute(query.order_by(table.trial_id, table.first))


def _rows(session: Session, trial_id: int, group: str, metric: str, *, after: int) -> list[Point]:
    is_plain = not set(metric) & set('"\\')  # databases disagree about quoting the others
    value = MetricTable.metrics[metric].as_float() if is_plain else MetricTable.metrics
    query = select(MetricTable.batches, value).where(
        MetricTable.trial_id == trial_id, MetricTable.group == group, MetricTable.batches > after
    )
    rows = session.execute(query.order_by(MetricTable.batches)).all()
    pairs = rows if is_plain else [(batches, metrics.get(metric)) for batches, metrics in rows]
    return [(batches, float(one)) for batches, one in pairs if isinstance(one, int | float)]


def _parts(trial_ids: Sequence[int]) -> Iterable[Sequence[int]]:
    for start in range(0, len(trial_ids), _TRIALS_PER_QUERY):
        yield trial_ids[start : start + _TRIALS_PER_QUERY]
