"""The master's HTTP application: assembles the routes, and turns each error into one sentence."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from trek import errors
from trek._version import __version__
from trek.client import models
from trek.client.wire_values import MAX_KEY_CHARACTERS, clean
from trek.control.services import Services
from trek.master.auth import Auth, NotLoggedIn
from trek.master.etags import add_etag
from trek.master.routes import (
    accounts,
    archives,
    checkpoints,
    cluster,
    events,
    experiments,
    flows,
    logs,
    prometheus,
    registry,
    trials,
)

_STATUS: dict[type[errors.TrekError], int] = {
    NotLoggedIn: 401,
    errors.NotAllowed: 403,
    errors.NotFound: 404,
    errors.InputError: 400,
    errors.StorageError: 507,
    errors.TrekError: 500,
}
_DOCUMENTED: dict[int | str, dict[str, Any]] = {
    304: {"description": "Unchanged: the client's copy (If-None-Match) is current."},
    400: {"model": models.ErrorBody, "description": "The request is invalid; the message says why."},
    401: {"model": models.ErrorBody, "description": "The token is missing, invalid or expired."},
    403: {"model": models.ErrorBody, "description": "The user is not allowed to do this."},
    404: {"model": models.ErrorBody, "description": "Not found."},
    422: {"model": models.ErrorBody, "description": "The request is malformed."},
    507: {"model": models.ErrorBody, "description": "The disk is full, or a store cannot be reached."},
}


def make_app(
    services: Services,
    *,
    token: str,
    stop: Callable[[bool], None],
    is_stopping: Callable[[], bool] = lambda: False,
    on_request: Callable[[], None] = lambda: None,
) -> FastAPI:
    """The application. `stop(kill)` ends the control plane; `on_request` is called for every request."""
    auth = Auth(services, own_token=token)
    app = FastAPI(title="Trek", version=__version__, docs_url="/docs", redoc_url=None, responses=_DOCUMENTED)
    app.add_exception_handler(errors.TrekError, _show_error)
    app.add_exception_handler(RequestValidationError, _show_bad_request)
    app.add_exception_handler(HTTPException, _show_http_error)

    @app.middleware("http")
    async def notice(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        on_request()
        return await call_next(request)

    app.middleware("http")(add_etag)

    @app.get("/health")
    def health() -> dict[str, str]:
        return {"status": "ok", "version": __version__}

    for router in (
        experiments.make_router(services, auth),
        trials.make_router(services, auth),
        checkpoints.make_router(services, auth),
        archives.make_router(services, auth),
        logs.make_router(services, auth),
        registry.make_router(services, auth),
        accounts.make_router(services, auth),
        cluster.make_router(services, auth, stop=stop),
        flows.make_router(services, auth),
        events.make_router(services, auth, is_stopping=is_stopping),
    ):
        app.include_router(router, prefix="/api/v1")
    app.include_router(prometheus.make_router(services, auth))
    return app


async def _show_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, errors.TrekError)
    status = next(code for kind, code in _STATUS.items() if isinstance(error, kind))
    kind = next(kind.__name__ for kind in type(error).__mro__ if hasattr(errors, kind.__name__))
    return JSONResponse(models.ErrorBody(kind=kind, message=clean(str(error))).model_dump(), status_code=status)


async def _show_bad_request(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part)[:MAX_KEY_CHARACTERS] for part in first["loc"])
    problem = first["msg"].removeprefix("Value error, ")
    body = models.ErrorBody(kind="InputError", message=clean(f"invalid request, {where}: {problem}."))
    return JSONResponse(body.model_dump(), status_code=422)


async def _show_http_error(request: Request, error: Exception) -> JSONResponse:
    """What the framework itself refuses: an unknown route or method, a body that cannot be read."""
    assert isinstance(error, HTTPException)
    kind = "NotFound" if error.status_code == 404 else "InputError"
    message = clean(f"{request.method} {request.url.path}: {error.detail}.")
    body = models.ErrorBody(kind=kind, message=message).model_dump()
    return JSONResponse(body, status_code=error.status_code, headers=error.headers)
