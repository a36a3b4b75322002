"""The master's HTTP application: routes that unpack, call one service and return. No decisions here."""

from __future__ import annotations

import hmac
import os
from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import APIRouter, Depends, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.concurrency import run_in_threadpool

from trek import errors
from trek._version import __version__
from trek.client import models
from trek.control.services import Services
from trek.experiments.package import MAX_BYTES
from trek.master.tar_stream import tar_stream

_STATUS: dict[type[errors.TrekError], int] = {
    errors.NotFound: 404,
    errors.NotAllowed: 401,
    errors.InputError: 400,
    errors.StorageError: 507,
    errors.TrekError: 500,
}

LogQuery = Annotated[int | None, Query(ge=1, le=100_000)]


def make_app(
    services: Services, *, token: str, stop: Callable[[bool], None], on_request: Callable[[], None] = lambda: None
) -> FastAPI:
    """The application over `services`. `stop(kill)` ends the control plane; `on_request` hears of every request."""

    async def check_token(request: Request) -> None:
        given = request.headers.get("authorization", "").removeprefix("Bearer ").encode()
        if not hmac.compare_digest(given, token.encode()):
            raise errors.NotAllowed("the token is missing or wrong. Set TREK_TOKEN.")

    app = FastAPI(title="Trek", version=__version__, docs_url="/docs", redoc_url=None)
    app.add_exception_handler(errors.TrekError, _show_error)
    app.add_exception_handler(RequestValidationError, _show_bad_request)

    @app.middleware("http")
    async def notice(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        on_request()
        return await call_next(request)

    @app.get("/health")
    def health() -> dict[str, str]:
        return {"status": "ok", "version": __version__}

    for router in (
        _experiment_routes(services),
        _trial_routes(services),
        _checkpoint_routes(services),
        _archive_routes(services),
        _cluster_routes(services, stop=stop),
    ):
        app.include_router(router, prefix="/api/v1", dependencies=[Depends(check_token)])
    return app


def _experiment_routes(services: Services) -> APIRouter:
    router = APIRouter(tags=["experiments"])

    @router.post("/experiments", status_code=201)
    def create_experiment(request: models.CreateExperiment) -> models.ExperimentDetails:
        return services.create_experiment(request)

    @router.get("/experiments")
    def list_experiments() -> list[models.Experiment]:
        return services.experiments()

    @router.get("/experiments/{experiment_id}")
    def get_experiment(experiment_id: int) -> models.ExperimentDetails:
        return services.experiment(experiment_id)

    @router.post("/experiments/{experiment_id}/kill")
    def kill_experiment(experiment_id: int) -> models.ExperimentDetails:
        return services.kill_experiment(experiment_id)

    @router.post("/experiments/{experiment_id}/pause")
    def pause_experiment(experiment_id: int) -> models.ExperimentDetails:
        return services.pause_experiment(experiment_id)

    @router.post("/experiments/{experiment_id}/activate")
    def activate_experiment(experiment_id: int) -> models.ExperimentDetails:
        return services.activate_experiment(experiment_id)

    @router.patch("/experiments/{experiment_id}")
    def change_experiment(experiment_id: int, change: models.ChangeExperiment) -> models.ExperimentDetails:
        return services.change_experiment(experiment_id, change)

    @router.delete("/experiments/{experiment_id}", status_code=204)
    def delete_experiment(experiment_id: int) -> None:
        services.delete_experiment(experiment_id)

    @router.get("/experiments/{experiment_id}/logs")
    def get_logs(
        experiment_id: int, after: int = 0, limit: LogQuery = 1000, tail: LogQuery = None
    ) -> list[models.LogLine]:
        return services.logs(experiment_id=experiment_id, after=after, limit=limit or 1000, tail=tail)

    return router


def _trial_routes(services: Services) -> APIRouter:
    router = APIRouter(tags=["trials"])

    @router.get("/trials/{trial_id}")
    def get_trial(trial_id: int) -> models.Trial:
        return services.trial(trial_id)

    @router.post("/trials/{trial_id}/kill")
    def kill_trial(trial_id: int) -> models.Trial:
        return services.kill_trial(trial_id)

    @router.get("/trials/{trial_id}/metrics")
    def get_metrics(trial_id: int, group: str | None = None) -> list[models.MetricPoint]:
        return services.metrics(trial_id, group=group)

    @router.get("/trials/{trial_id}/logs")
    def get_logs(trial_id: int, after: int = 0, limit: LogQuery = 1000, tail: LogQuery = None) -> list[models.LogLine]:
        return services.logs(trial_id=trial_id, after=after, limit=limit or 1000, tail=tail)

    @router.get("/trials/{trial_id}/assignment")
    def get_assignment(trial_id: int, run: int) -> models.Assignment:
        return services.assignment(trial_id, run=run)

    @router.post("/trials/{trial_id}/reports")
    def report(trial_id: int, report: models.Report) -> models.ReportReply:
        return services.report(trial_id, report)

    return router


def _checkpoint_routes(services: Services) -> APIRouter:
    router = APIRouter(tags=["checkpoints"])

    @router.get("/checkpoints")
    def list_checkpoints(experiment_id: int | None = None, trial_id: int | None = None) -> list[models.Checkpoint]:
        return services.checkpoints(experiment_id=experiment_id, trial_id=trial_id)

    @router.get("/checkpoints/{uuid}")
    def get_checkpoint(uuid: str) -> models.Checkpoint:
        return services.checkpoint(uuid)

    @router.delete("/checkpoints/{uuid}")
    def delete_checkpoint(uuid: str) -> models.Checkpoint:
        return services.delete_checkpoint(uuid)

    @router.get("/checkpoints/{uuid}/files", response_class=StreamingResponse)
    def get_checkpoint_files(uuid: str) -> StreamingResponse:
        return StreamingResponse(tar_stream(services.checkpoint_folder(uuid)), media_type="application/x-tar")

    return router


def _archive_routes(services: Services) -> APIRouter:
    router = APIRouter(tags=["archives"])

    @router.put("/archives/{sha256}", status_code=204)
    async def put_archive(sha256: str, request: Request) -> None:
        data = await _body(request, max_bytes=MAX_BYTES)
        await run_in_threadpool(services.archives.put, data, sha256=sha256)

    @router.get("/archives/{sha256}/exists")
    def has_archive(sha256: str) -> bool:
        return services.archives.has(sha256)

    @router.get("/archives/{sha256}", response_class=Response)
    def get_archive(sha256: str) -> Response:
        return Response(services.archives.get(sha256), media_type="application/gzip")

    return router


def _cluster_routes(services: Services, *, stop: Callable[[bool], None]) -> APIRouter:
    router = APIRouter(tags=["cluster"])

    @router.get("/cluster")
    def get_cluster() -> models.ClusterInfo:
        return services.cluster(version=__version__, pid=os.getpid())

    @router.post("/cluster/stop", status_code=202)
    def stop_cluster(kill: bool = False) -> None:
        stop(kill)

    return router


async def _body(request: Request, *, max_bytes: int) -> bytes:
    parts, total = [], 0
    async for part in request.stream():
        total += len(part)
        if total > max_bytes:
            raise errors.InputError(f"the upload is over the limit of {max_bytes} bytes.")
        parts.append(part)
    return b"".join(parts)


async def _show_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, errors.TrekError)
    status = next(code for kind, code in _STATUS.items() if isinstance(error, kind))
    body = models.ErrorBody(kind=type(error).__name__, message=str(error))
    return JSONResponse(body.model_dump(), status_code=status)


async def _show_bad_request(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    body = models.ErrorBody(kind="InputError", message=f"the request's {where} is wrong: {first['msg']}.")
    return JSONResponse(body.model_dump(), status_code=422)
