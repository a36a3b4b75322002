"""How lines of logs are asked for in an address: what several routes share."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Query

from trek.client.models import Level
from trek.control.logs.query import LogSearch

Tail = Annotated[int | None, Query(ge=1, le=100_000, description="The last so many, instead of a page.")]
After = Annotated[int, Query(alias="cursor", description="The id of the last line seen.")]


def _search(
    text: str | None = None,
    rank: Annotated[int | None, Query(ge=0, le=2**31 - 1)] = None,
    level: Level | None = None,
    since: float | None = None,
    until: float | None = None,
) -> LogSearch:
    return LogSearch(text=text, rank=rank, level=level, since=since, until=until)


Search = Annotated[LogSearch, Depends(_search)]
