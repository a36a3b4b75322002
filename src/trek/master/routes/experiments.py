"""Routes of experiments."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request, Response

from trek.client import models
from trek.control.services import Services
from trek.master.auth import Auth
from trek.master.routes.log_query import After, Search, Tail
from trek.master.routes.paging import Cursor, Limit, read_id, tell_next


def make_router(services: Services, auth: Auth) -> APIRouter:
    """Experiments: anybody looks, editors create, owners change."""
    router = APIRouter(prefix="/experiments", tags=["experiments"])
    viewer, editor = [Depends(auth.at_least("viewer"))], [Depends(auth.at_least("editor"))]
    owner = [Depends(auth.owner_of_experiment)]

    @router.post("", status_code=201, dependencies=editor)
    def create_experiment(body: models.CreateExperiment, request: Request) -> models.ExperimentDetails:
        return services.create_experiment(body, owner=auth.identify(request).name)

    @router.get("", dependencies=viewer)
    def list_experiments(response: Response, limit: Limit = 1000, cursor: Cursor = None) -> list[models.Experiment]:
        """The newest first. Where there are more, the header x-next-cursor is what to give as `cursor`."""
        found = services.experiments(limit=limit, before=read_id(cursor))
        tell_next(response, found, limit=limit, cursor=lambda one: str(one.id))
        return found

    @router.get("/{experiment_id}", dependencies=viewer)
    def get_experiment(experiment_id: int) -> models.ExperimentDetails:
        return services.experiment(experiment_id)

    @router.get("/{experiment_id}/logs", dependencies=viewer)
    def get_logs(
        experiment_id: int, search: Search, response: Response, after: After = 0, limit: Limit = 1000, tail: Tail = None
    ) -> list[models.LogLine]:
        """The oldest first."""
        found = services.logs(experiment_id=experiment_id, after=after, limit=limit, tail=tail, search=search)
        if tail is None:
            tell_next(response, found, limit=limit, cursor=lambda line: str(line.id))
        return found

    @router.get("/{experiment_id}/trials", dependencies=viewer)
    def list_trials(
        experiment_id: int, response: Response, limit: Limit = 1000, cursor: Cursor = None
    ) -> list[models.Trial]:
        """In the order they were made."""
        found = services.trials(experiment_id, limit=limit, after=read_id(cursor) or 0)
        tell_next(response, found, limit=limit, cursor=lambda trial: str(trial.id))
        return found

    @router.post("/{experiment_id}/fork", status_code=201, dependencies=editor)
    def fork_experiment(experiment_id: int, body: models.ForkExperiment, request: Request) -> models.ExperimentDetails:
        return services.fork_experiment(experiment_id, body, owner=auth.identify(request).name)

    @router.post("/{experiment_id}/kill", dependencies=owner)
    def kill_experiment(experiment_id: int) -> models.ExperimentDetails:
        return services.kill_experiment(experiment_id)

    @router.post("/{experiment_id}/pause", dependencies=owner)
    def pause_experiment(experiment_id: int) -> models.ExperimentDetails:
        return services.pause_experiment(experiment_id)

    @router.post("/{experiment_id}/activate", dependencies=owner)
    def activate_experiment(experiment_id: int) -> models.ExperimentDetails:
        return services.activate_experiment(experiment_id)

    @router.patch("/{experiment_id}", dependencies=owner)
    def change_experiment(experiment_id: int, body: models.ChangeExperiment) -> models.ExperimentDetails:
        return services.change_experiment(experiment_id, body)

    @router.delete("/{experiment_id}", status_code=204, dependencies=owner)
    def delete_experiment(experiment_id: int) -> None:
        services.delete_experiment(experiment_id)

    return router
