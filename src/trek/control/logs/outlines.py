"""Outlines: how many lines match a search, and where every thousandth of them is, known from one look at each line.

Lines are only added behind those that are there, or deleted from the oldest on. So an outline is extended by the new
lines alone, and made anew when its first line is gone.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, func, or_, select
from sqlalchemy.orm import Session

from trek.control.tables import LogTable

STEP = 1000
MAX_TRACEBACKS = 200
MAX_OUTLINES = 64


@dataclass(frozen=True)
class Outline:
    """Of the lines up to the id `last`: their number, the ids of every thousandth, the numbers of tracebacks."""

    count: int = 0
    last: int = 0
    anchors: tuple[int, ...] = ()
    tracebacks: tuple[int, ...] = ()


class Outlines:
    """Keeps the outlines that were asked for last. Safe to use from several threads."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, Outline] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, session: Session, key: Hashable, conditions: Sequence[ColumnElement[bool]]) -> Outline:
        """The outline of the lines that fulfil `conditions`, which `key` stands for."""
        with self._lock:
            known = self._kept.get(key, Outline())
        if known.count and _first(session, conditions) != known.anchors[0]:
            known = Outline()
        found = _extended(session, known, conditions)
        with self._lock:
            self._kept[key] = found
            self._kept.move_to_end(key)
            if len(self._kept) > MAX_OUTLINES:
                self._kept.popitem(last=False)
        return found


def _first(session: Session, conditions: Sequence[ColumnElement[bool]]) -> int | None:
    return session.scalar(select(LogTable.id).where(*conditions).order_by(LogTable.id).limit(1))


def _extended(session: Session, known: Outline, conditions: Sequence[ColumnElement[bool]]) -> Outline:
    where = (*conditions, LogTable.id > known.last)
    added, last = session.execute(select(func.count(), func.max(LogTable.id)).where(*where)).one()
    if not added:
        return known
    number = (func.row_number().over(order_by=LogTable.id) - 1 + known.count).label("number")
    begins = LogTable.text.startswith("Traceback (most recent call last)").label("begins")
    lines = select(LogTable.id, number, begins).where(*where, LogTable.id <= last).subquery()
    marked = select(lines).where(or_(lines.c.number % STEP == 0, lines.c.begins)).order_by(lines.c.number)
    rows = session.execute(marked).all()
    return Outline(
        count=known.count + added,
        last=last,
        anchors=known.anchors + tuple(line for line, number, _ in rows if number % STEP == 0),
        tracebacks=(known.tracebacks + tuple(number for _, number, begins in rows if begins))[:MAX_TRACEBACKS],
    )
