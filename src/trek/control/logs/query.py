"""Which lines of a log are wanted: by text, process, level and time."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import ColumnElement

from trek.client.models import Level
from trek.control.logs.levels import LEVELS
from trek.control.tables import LogTable


@dataclass(frozen=True)
class LogSearch:
    """What is None or empty does not matter. Times are seconds since 1970, both ends included."""

    text: str | None = None
    """In capitals or not."""
    rank: int | None = None
    level: Level | None = None
    """This level, or a worse one."""
    since: float | None = None
    until: float | None = None

    def conditions(self) -> list[ColumnElement[bool]]:
        """What holds for the rows that are wanted."""
        conditions: list[ColumnElement[bool]] = []
        if self.text:
            conditions.append(LogTable.text.icontains(self.text, autoescape=True))
        if self.rank is not None:
            conditions.append(LogTable.rank == self.rank)
        if self.level is not None:
            conditions.append(LogTable.level >= LEVELS[self.level])
        if self.since is not None:
            conditions.append(LogTable.time_s >= self.since)
        if self.until is not None:
            conditions.append(LogTable.time_s <= self.until)
        return conditions


ANY_LINE = LogSearch()
