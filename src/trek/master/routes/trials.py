"""Routes of trials."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from trek.client import models
from trek.control.services import Services
from trek.master.auth import Auth
from trek.master.routes.paging import Cursor, Limit, read_pair, tell_next

MaxPoints = Annotated[int | None, Query(ge=4, le=100_000)]


def make_router(services: Services, auth: Auth) -> APIRouter:
    """Viewers read, owners end and scale trials, and a trial's own processes report."""
    router = APIRouter(prefix="/trials/{trial_id}", tags=["trials"])
    viewer, itself = [Depends(auth.at_least("viewer"))], [Depends(auth.trial_itself)]

    @router.get("", dependencies=viewer)
    def get_trial(trial_id: int) -> models.TrialRecord:
        return services.trials.get(trial_id)

    @router.get("/metrics", dependencies=viewer)
    def get_metrics(
        trial_id: int,
        response: Response,
        group: str | None = None,
        max_points: MaxPoints = None,
        limit: Limit = 10_000,
        cursor: Cursor = None,
    ) -> list[models.MetricPoint]:
        """Ordered by group and batches. With max_points, one page of downsampled series with every extreme."""
        if max_points is not None:
            return services.trials.metrics(trial_id, group=group, max_points=max_points)
        found = services.trials.metric_page(trial_id, group=group, limit=limit, after=read_pair(cursor))
        tell_next(response, found, limit=limit, cursor=lambda point: f"{point.batches}:{point.group}")
        return found

    @router.get("/workers", dependencies=viewer)
    def get_workers(trial_id: int) -> list[models.WorkerChange]:
        """The workers of an elastic trial that joined and left, in order; none for other trials."""
        return services.trials.worker_changes(trial_id)

    @router.get("/best-checkpoint", dependencies=viewer)
    def get_best_checkpoint_of_trial(trial_id: int) -> models.BestCheckpoint:
        """The best by the searcher's metric; the newest where none has it."""
        return services.checkpoints.best_of_trial(trial_id)

    @router.post("/kill", dependencies=[Depends(auth.owner_of_trial)])
    def kill_trial(trial_id: int) -> models.TrialRecord:
        return services.trials.kill(trial_id)

    @router.post("/scale", dependencies=[Depends(auth.owner_of_trial)])
    def scale_trial(trial_id: int, body: models.ScaleTrial) -> models.TrialRecord:
        """A running trial saves and resumes with the new number of slots; a queued one starts with it.

        An elastic trial goes on without a restart, with up to this number of workers.
        """
        return services.trials.scale(trial_id, slots=body.slots)

    @router.get("/assignment", dependencies=itself)
    def get_assignment(trial_id: int, run: int) -> models.Assignment:
        return services.trials.assignment(trial_id, run=run)

    @router.post("/reports", dependencies=itself)
    def report(trial_id: int, body: models.Report) -> models.ReportReply:
        return services.trials.report(trial_id, body)

    return router
