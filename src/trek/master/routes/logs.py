"""Routes of log lines, of a whole experiment or of one trial."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from trek.client import models
from trek.control.logs.query import LogSearch
from trek.control.services import Services
from trek.master.auth import Auth
from trek.master.routes.paging import Limit, tell_next

After = Annotated[int, Query(alias="cursor", description="The id of the last line seen.")]
Tail = Annotated[int | None, Query(ge=1, le=100_000, description="Only the last lines, this many, instead of a page.")]


@dataclass(frozen=True)
class LogQuery:
    """How a URL asks for lines."""

    text: str | None = None
    rank: Annotated[int | None, Query(ge=0, le=2**31 - 1)] = None
    level: models.Level | None = None
    since: float | None = None
    until: float | None = None
    after: After = 0
    limit: Limit = 1000
    tail: Tail = None

    @property
    def search(self) -> LogSearch:
        """Which lines match."""
        return LogSearch(text=self.text, rank=self.rank, level=self.level, since=self.since, until=self.until)


def make_router(services: Services, auth: Auth) -> APIRouter:
    """Viewers read."""
    router = APIRouter(tags=["logs"], dependencies=[Depends(auth.at_least("viewer"))])

    def answer(query: LogQuery, response: Response, **owner: int) -> list[models.LogLine]:
        found = services.logs.read(**owner, after=query.after, limit=query.limit, tail=query.tail, search=query.search)
        if query.tail is None:
            tell_next(response, found, limit=query.limit, cursor=lambda line: str(line.id))
        return found

    @router.get("/experiments/{experiment_id}/logs")
    def get_experiment_logs(
        experiment_id: int, query: Annotated[LogQuery, Depends()], response: Response
    ) -> list[models.LogLine]:
        """The lines of all trials, the oldest first."""
        return answer(query, response, experiment_id=experiment_id)

    @router.get("/trials/{trial_id}/logs")
    def get_trial_logs(
        trial_id: int, query: Annotated[LogQuery, Depends()], response: Response
    ) -> list[models.LogLine]:
        """The lines of one trial, the oldest first."""
        return answer(query, response, trial_id=trial_id)

    return router
