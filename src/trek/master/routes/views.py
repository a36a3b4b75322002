"""Routes that show much in one answer: curves, rungs, code, outlines of logs, checks of configs."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request

from trek.client.models import ForkExperiment
from trek.client.view_models import (
    CheckConfig,
    CodeFile,
    CodeText,
    ConfigCheck,
    Curve,
    LogOutline,
    MetricNames,
    RungView,
    Sparkline,
    TrialEvent,
)
from trek.control.metrics.overview import WHOLE, Extent
from trek.control.services import Services
from trek.errors import InputError
from trek.experiments.config_schema import config_schema
from trek.master.auth import Auth
from trek.master.routes.logs import LogQuery

MAX_CURVES = 1000
Ids = Annotated[
    str, Query(max_length=20_000, description="Ids, separated by commas.", pattern=r"^[0-9]{0,18}(,[0-9]{1,18})*$")
]
MaxPoints = Annotated[int, Query(ge=4, le=10_000)]
Smoothing = Annotated[float, Query(ge=0, lt=1, allow_inf_nan=False)]
Batches = Annotated[int, Query(ge=0, le=2**53)]


def make_router(services: Services, auth: Auth) -> APIRouter:
    """Viewers read, except code, which may hold secrets; editors check configs."""
    router = APIRouter(tags=["views"])
    viewer, editor = [Depends(auth.at_least("viewer"))], [Depends(auth.at_least("editor"))]

    @router.get("/curves", dependencies=viewer)
    def get_curves(
        group: str = "validation",
        metric: str = "",
        trials: Ids = "",
        experiment_id: int | None = None,
        max_points: MaxPoints = 300,
        with_times: bool = False,
        first: Batches | None = None,
        last: Batches | None = None,
        smoothing: Smoothing = 0.0,
    ) -> list[Curve]:
        """One metric of these trials, or of all trials of an experiment, over batches; epochs and times on request.

        Between the batches `first` and `last`, if given, and a little around them: the shorter, the finer.
        `smoothing` is the weight of earlier values in a moving average over every row from the first on.
        """
        extent = Extent(WHOLE.first if first is None else first, WHOLE.last if last is None else last)
        chosen: dict[str, Any] = {
            "group": group, "metric": metric, "max_points": max_points, "with_times": with_times, "extent": extent,
            "smoothing": smoothing,
        }  # fmt: skip
        if experiment_id is not None:
            return services.curves.of_experiment(experiment_id, **chosen)
        return services.curves.of_trials(_ids(trials), **chosen)

    @router.get("/metric-names", dependencies=viewer)
    def get_names(trials: Ids = "", experiment_id: int | None = None) -> list[MetricNames]:
        """The metrics that these trials, or those of an experiment, report."""
        return services.curves.names(experiment_id=experiment_id, trial_ids=_ids(trials))

    @router.get("/sparklines", dependencies=viewer)
    def get_sparklines(experiments: Ids = "") -> list[Sparkline]:
        """The searcher's metric of each experiment's best trial, in a few points."""
        return services.curves.sparklines(_ids(experiments))

    @router.get("/experiments/{experiment_id}/rungs", dependencies=viewer)
    def get_rungs(experiment_id: int) -> list[RungView]:
        """Who came to which rung of the search, and who went on; empty for searchers without rungs."""
        return services.experiments.rungs(experiment_id)

    @router.get("/experiments/{experiment_id}/files", dependencies=editor)
    def list_code(experiment_id: int) -> list[CodeFile]:
        """The files that ran."""
        return services.code.files(experiment_id)

    @router.get("/experiments/{experiment_id}/file", dependencies=editor)
    def get_code(experiment_id: int, path: Annotated[str, Query(max_length=4000)] = "") -> CodeText:
        """One of the files that ran."""
        return services.code.file(experiment_id, path)

    @router.post("/experiments/{experiment_id}/fork/check", dependencies=editor)
    def check_fork(experiment_id: int, body: CheckConfig, request: Request) -> ConfigCheck:
        """Whether a fork with this config, as YAML, could be made; nothing is."""
        identity = auth.identify(request)
        return services.experiments.check_fork(
            experiment_id,
            ForkExperiment(config=body.config),
            owner=identity.name,
            is_admin=identity.role == "admin",
        )

    @router.get("/trials/{trial_id}/history", dependencies=viewer)
    def get_history(trial_id: int) -> list[TrialEvent]:
        """When its runs began and ended, and why."""
        return services.trials.history(trial_id)

    @router.get("/trials/{trial_id}/logs/outline", dependencies=viewer)
    def outline_trial(trial_id: int, query: Annotated[LogQuery, Depends()]) -> LogOutline:
        """How many lines match, and where to begin reading any of them."""
        return services.logs.outline(trial_id=trial_id, search=query.search)

    @router.get("/experiments/{experiment_id}/logs/outline", dependencies=viewer)
    def outline_experiment(experiment_id: int, query: Annotated[LogQuery, Depends()]) -> LogOutline:
        """The same for all trials of an experiment."""
        return services.logs.outline(experiment_id=experiment_id, search=query.search)

    @router.get("/config-schema", dependencies=viewer)
    def get_config_schema() -> dict[str, Any]:
        """The JSON Schema of configs, with the defaults."""
        return config_schema()

    return router


def _ids(text: str) -> list[int]:
    ids = [int(one) for one in text.split(",") if one]
    if len(ids) > MAX_CURVES:
        raise InputError(f"expected at most {MAX_CURVES} ids, got {len(ids)}.")
    return ids
