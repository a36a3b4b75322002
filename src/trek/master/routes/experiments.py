"""Routes of experiments."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request, Response

from trek.client import models
from trek.control.services import Services
from trek.master.auth import Auth
from trek.master.routes.paging import Cursor, Limit, read_id, tell_next


def make_router(services: Services, auth: Auth) -> APIRouter:
    """Viewers read, editors create, owners change."""
    router = APIRouter(prefix="/experiments", tags=["experiments"])
    viewer, editor = [Depends(auth.at_least("viewer"))], [Depends(auth.at_least("editor"))]
    owner = [Depends(auth.owner_of_experiment)]
    experiments = services.experiments

    @router.post("", status_code=201, dependencies=editor)
    def create_experiment(body: models.CreateExperiment, request: Request) -> models.ExperimentDetails:
        return experiments.create(body, owner=auth.identify(request).name)

    @router.get("", dependencies=viewer)
    def list_experiments(
        response: Response, limit: Limit = 1000, cursor: Cursor = None
    ) -> list[models.ExperimentRecord]:
        """The newest first. If there are more, the header x-next-cursor holds the `cursor` of the next page."""
        found = experiments.all(limit=limit, before=read_id(cursor))
        tell_next(response, found, limit=limit, cursor=lambda one: str(one.id))
        return found

    @router.get("/{experiment_id}", dependencies=viewer)
    def get_experiment(experiment_id: int) -> models.ExperimentDetails:
        return experiments.get(experiment_id)

    @router.get("/{experiment_id}/trials", dependencies=viewer)
    def list_trials(
        experiment_id: int, response: Response, limit: Limit = 1000, cursor: Cursor = None
    ) -> list[models.TrialRecord]:
        """In the order they were created."""
        found = services.trials.all(experiment_id, limit=limit, after=read_id(cursor) or 0)
        tell_next(response, found, limit=limit, cursor=lambda trial: str(trial.id))
        return found

    @router.get("/{experiment_id}/best-checkpoint", dependencies=viewer)
    def get_best_checkpoint(experiment_id: int) -> models.BestCheckpoint:
        """The stored checkpoint with the best value of the searcher's metric, over all trials."""
        return services.checkpoints.best(experiment_id)

    @router.post("/{experiment_id}/fork", status_code=201, dependencies=editor)
    def fork_experiment(experiment_id: int, body: models.ForkExperiment, request: Request) -> models.ExperimentDetails:
        """Of another user's experiment, masked values must be among the changes."""
        identity = auth.identify(request)
        return experiments.fork(experiment_id, body, owner=identity.name, is_admin=identity.role == "admin")

    @router.post("/{experiment_id}/kill", dependencies=owner)
    def kill_experiment(experiment_id: int) -> models.ExperimentDetails:
        return experiments.kill(experiment_id)

    @router.post("/{experiment_id}/pause", dependencies=owner)
    def pause_experiment(experiment_id: int) -> models.ExperimentDetails:
        return experiments.pause(experiment_id)

    @router.post("/{experiment_id}/activate", dependencies=owner)
    def activate_experiment(experiment_id: int) -> models.ExperimentDetails:
        return experiments.activate(experiment_id)

    @router.patch("/{experiment_id}", dependencies=owner)
    def change_experiment(experiment_id: int, body: models.ChangeExperiment) -> models.ExperimentDetails:
        return experiments.change(experiment_id, body)

    @router.delete("/{experiment_id}", status_code=204, dependencies=owner)
    def delete_experiment(experiment_id: int) -> None:
        experiments.delete(experiment_id)

    return router
