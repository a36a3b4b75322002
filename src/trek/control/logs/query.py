"""Selects log lines by text, rank, level and time."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import ColumnElement

from trek.client.models import Level
from trek.control.logs.levels import LEVELS
from trek.control.tables import LogTable


@dataclass(frozen=True)
class LogSearch:
    """Fields that are None or empty match every line. Times are seconds since 1970, both ends included."""

    text: str | None = None
    """Part of the line; case is ignored."""
    rank: int | None = None
    level: Level | None = None
    """This level or a more severe one."""
    since: float | None = None
    until: float | None = None

    def conditions(self) -> list[ColumnElement[bool]]:
        """The conditions that matching rows fulfil."""
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
