"""Routes of trials."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from trek.client import models
from trek.control.services import Services
from trek.master.auth import Auth
from trek.master.routes.log_query import After, Search, Tail
from trek.master.routes.paging import Cursor, Limit, read_pair, tell_next

MaxPoints = Annotated[int | None, Query(ge=4, le=100_000)]


def make_router(services: Services, auth: Auth) -> APIRouter:
    """Trials: anybody looks, owners end and scale them, and a trial's own processes report."""
    router = APIRouter(prefix="/trials/{trial_id}", tags=["trials"])
    viewer, itself = [Depends(auth.at_least("viewer"))], [Depends(auth.trial_itself)]

    @router.get("", dependencies=viewer)
    def get_trial(trial_id: int) -> models.Trial:
        return services.trial(trial_id)

    @router.get("/metrics", dependencies=viewer)
    def get_metrics(
        trial_id: int,
        response: Response,
        group: str | None = None,
        max_points: MaxPoints = None,
        limit: Limit = 10_000,
        cursor: Cursor = None,
    ) -> list[models.MetricPoint]:
        """By group, and in order. With max_points all in one page: series are thinned out, every extreme stays."""
        if max_points is not None:
            return services.metrics(trial_id, group=group, max_points=max_points)
        found = services.metric_page(trial_id, group=group, limit=limit, after=read_pair(cursor))
        tell_next(response, found, limit=limit, cursor=lambda point: f"{point.batches}:{point.group}")
        return found

    @router.get("/logs", dependencies=viewer)
    def get_logs(
        trial_id: int, search: Search, response: Response, after: After = 0, limit: Limit = 1000, tail: Tail = None
    ) -> list[models.LogLine]:
        """The oldest first."""
        found = services.logs(trial_id=trial_id, after=after, limit=limit, tail=tail, search=search)
        if tail is None:
            tell_next(response, found, limit=limit, cursor=lambda line: str(line.id))
        return found

    @router.post("/kill", dependencies=[Depends(auth.owner_of_trial)])
    def kill_trial(trial_id: int) -> models.Trial:
        return services.kill_trial(trial_id)

    @router.post("/scale", dependencies=[Depends(auth.owner_of_trial)])
    def scale_trial(trial_id: int, body: models.ScaleTrial) -> models.Trial:
        """A trial that runs saves and goes on from there; one that waits changes its size."""
        return services.scale_trial(trial_id, slots=body.slots)

    @router.get("/assignment", dependencies=itself)
    def get_assignment(trial_id: int, run: int) -> models.Assignment:
        return services.assignment(trial_id, run=run)

    @router.post("/reports", dependencies=itself)
    def report(trial_id: int, body: models.Report) -> models.ReportReply:
        return services.report(trial_id, body)

    return router
