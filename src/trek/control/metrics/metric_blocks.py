"""Summaries of long series, stored beside the rows: the extremes of every 64 rows, of every 256, and so on.

To draw a long series, a query reads the coarsest blocks that are fine enough, and the rows after the last block. Blocks
cover consecutive rows without gaps. When a row is reported again, the blocks from its position on are deleted; they are
built again as far as the series has been reported again, so that each row is summarised once however it arrives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import Row, delete, func, insert, select
from sqlalchemy.orm import Session

from trek.control.metrics.downsampling import Extremes, Stretch, chosen_points, joined, num_buckets, stretch_of_rows
from trek.control.tables import MetricBlockTable, MetricTable

BLOCK_ROWS = (64, 256, 1024, 4096, 16_384)
GATHER_ROWS = 1024
"""How many rows accumulate before they are summarised: reading them then costs little compared with writing."""
MOST_AT_ONCE = 32_768
"""How many rows one report summarises at most, so that rebuilding a series never holds the lock for long."""
_IDS_PER_QUERY = 500
_Row = tuple[int, Mapping[str, float | None]]
_T = TypeVar("_T")


def summarise(session: Session, trial_id: int, group: str, *, until: int | None = None) -> bool:
    """Build the blocks that are complete up to the row `until`; False if too few rows have accumulated."""
    after = _end(session, trial_id, group, level=0)
    rows = _rows(session, trial_id, group, after=after, until=until, limit=MOST_AT_ONCE, at_least=GATHER_ROWS)
    if not rows:
        return False
    whole = [stretch_of_rows(part) for part in _whole_parts(rows, size=BLOCK_ROWS[0])]
    _write(session, trial_id, group, level=0, made=whole)
    for level in range(1, len(BLOCK_ROWS)):
        after = _end(session, trial_id, group, level=level)
        sources = _blocks(session, trial_id, group, level=level - 1, after=after)
        size = BLOCK_ROWS[level] // BLOCK_ROWS[level - 1]
        _write(session, trial_id, group, level=level, made=[joined(part) for part in _whole_parts(sources, size=size)])
    return True


def forget(session: Session, trial_id: int, group: str, *, from_batches: int) -> None:
    """Delete the blocks that cover rows from `from_batches` on, because those rows change."""
    if _end(session, trial_id, group, level=0) < from_batches:
        return
    session.execute(
        delete(MetricBlockTable).where(
            MetricBlockTable.trial_id == trial_id,
            MetricBlockTable.group == group,
            MetricBlockTable.last >= from_batches,
        )
    )


def points_to_show(session: Session, trial_id: int, group: str, *, max_points: int) -> list[int] | None:
    """Batches of the rows that represent the series; None if it has at most `max_points` rows."""
    owned = (MetricTable.trial_id == trial_id, MetricTable.group == group)
    few = select(MetricTable.batches).where(*owned).limit(max_points + 1).subquery()
    if (session.scalar(select(func.count()).select_from(few)) or 0) <= max_points:
        return None
    return chosen_points(_overview(session, trial_id, group, max_points=max_points), max_points=max_points)


def groups(session: Session, trial_id: int) -> list[str]:
    """A trial's groups, found with one index lookup each: scanning a long series would take too long."""
    found: list[str] = []
    query = select(func.min(MetricTable.group)).where(MetricTable.trial_id == trial_id)
    name = session.scalar(query)
    while name is not None:
        found.append(name)
        name = session.scalar(query.where(MetricTable.group > name))
    return found


def rows_at(session: Session, trial_id: int, group: str, batches: Sequence[int]) -> list[Row[Any]]:
    """The columns of the rows at these batches. Building thousands of objects would take longer than finding them."""
    owned = select(*MetricTable.__table__.columns).where(MetricTable.trial_id == trial_id, MetricTable.group == group)
    rows: list[Row[Any]] = []
    for start in range(0, len(batches), _IDS_PER_QUERY):
        rows += session.execute(owned.where(MetricTable.batches.in_(batches[start : start + _IDS_PER_QUERY]))).all()
    return rows


def _overview(session: Session, trial_id: int, group: str, *, max_points: int) -> list[Stretch]:
    """The series from coarse to fine: blocks of a sufficient level, then finer ones, then single rows."""
    after, stretches = -1, list[Stretch]()
    for level in reversed(range(_level(session, trial_id, group, max_points=max_points) + 1)):
        stretches += _blocks(session, trial_id, group, level=level, after=after)
        after = stretches[-1].last if stretches else after
    return stretches + [stretch_of_rows([row]) for row in _rows(session, trial_id, group, after=after)]


def _level(session: Session, trial_id: int, group: str, *, max_points: int) -> int:
    """The coarsest level that has a block for every bucket; the finest if none has."""
    owned = (MetricBlockTable.trial_id == trial_id, MetricBlockTable.group == group)
    for level in reversed(range(1, len(BLOCK_ROWS))):
        here = (*owned, MetricBlockTable.level == level)
        extremes = session.scalar(select(MetricBlockTable.extremes).where(*here).limit(1))
        count = session.scalar(select(func.count()).select_from(MetricBlockTable).where(*here)) or 0
        if extremes is not None and count >= num_buckets(max_points=max_points, num_metrics=len(extremes)):
            return level
    return 0


def _end(session: Session, trial_id: int, group: str, *, level: int) -> int:
    """The batches of the last row that has a block."""
    last = select(MetricBlockTable.last).where(
        MetricBlockTable.trial_id == trial_id, MetricBlockTable.group == group, MetricBlockTable.level == level
    )
    end = session.scalar(last.order_by(MetricBlockTable.first.desc()).limit(1))
    return -1 if end is None else end


def _rows(
    session: Session,
    trial_id: int,
    group: str,
    *,
    after: int,
    until: int | None = None,
    limit: int | None = None,
    at_least: int = 0,
) -> list[_Row]:
    """Rows past `after`, in order; none if there are fewer than `at_least`, which is found without reading them."""
    where = [MetricTable.trial_id == trial_id, MetricTable.group == group, MetricTable.batches > after]
    if until is not None:
        where.append(MetricTable.batches <= until)
    few = select(MetricTable.batches).where(*where).limit(at_least).subquery()
    if at_least and (session.scalar(select(func.count()).select_from(few)) or 0) < at_least:
        return []
    query = select(MetricTable.batches, MetricTable.metrics).where(*where).order_by(MetricTable.batches).limit(limit)
    return [(batches, metrics) for batches, metrics in session.execute(query)]


def _blocks(session: Session, trial_id: int, group: str, *, level: int, after: int) -> list[Stretch]:
    table = MetricBlockTable
    query = select(table.first, table.last, table.num_rows, table.extremes).where(
        table.trial_id == trial_id, table.group == group, table.level == level, table.first > after
    )
    return [
        Stretch(first, last, num_rows, {name: Extremes(*values) for name, values in extremes.items()})
        for first, last, num_rows, extremes in session.execute(query.order_by(table.first))
    ]


def _whole_parts(sources: Sequence[_T], *, size: int) -> list[Sequence[_T]]:
    return [sources[start : start + size] for start in range(0, len(sources) // size * size, size)]


def _write(session: Session, trial_id: int, group: str, *, level: int, made: Sequence[Stretch]) -> None:
    if made:
        owner = {"trial_id": trial_id, "group": group, "level": level}
        session.execute(insert(MetricBlockTable), [{**owner, **vars(one), "extremes": _stored(one)} for one in made])


def _stored(stretch: Stretch) -> dict[str, Sequence[Any]]:
    """Without the fields about values that are not finite where all are, so that most blocks stay small."""
    return {name: one if one.num_undefined else one[:4] for name, one in stretch.extremes.items()}
