"""The master's HTTP application: puts the routes together, and turns errors into one sentence each."""

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
from trek.control.accounts import Accounts
from trek.control.checkpoints.model_registry import Registry
from trek.control.services import Services
from trek.master.auth import Auth, NotLoggedIn
from trek.master.etags import add_etag
from trek.master.routes import accounts as account_routes
from trek.master.routes import archives, checkpoints, cluster, events, experiments, flows, prometheus, trials
from trek.master.routes import registry as registry_routes

_STATUS: dict[type[errors.TrekError], int] = {
    NotLoggedIn: 401,
    errors.NotAllowed: 403,
    errors.NotFound: 404,
    errors.InputError: 400,
    errors.StorageError: 507,
    errors.TrekError: 500,
}
_DOCUMENTED: dict[int | str, dict[str, Any]] = {
    304: {"description": "What the client has (If-None-Match) is what there is."},
    400: {"model": models.ErrorBody, "description": "A mistake in what is asked."},
    401: {"model": models.ErrorBody, "description": "The token is missing, wrong or expired."},
    403: {"model": models.ErrorBody, "description": "Known, and not allowed."},
    404: {"model": models.ErrorBody, "description": "Nothing is there."},
    422: {"model": models.ErrorBody, "description": "A request that makes no sense."},
    507: {"model": models.ErrorBody, "description": "The disk is full, or a store cannot be reached."},
}


def make_app(
    services: Services,
    accounts: Accounts,
    registry: Registry,
    *,
    token: str,
    stop: Callable[[bool], None],
    is_stopping: Callable[[], bool] = lambda: False,
    on_request: Callable[[], None] = lambda: None,
) -> FastAPI:
    """The application. `stop(kill)` ends the control plane; `on_request` hears of every request."""
    auth = Auth(accounts, services, own_token=token)
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
        registry_routes.make_router(registry, services, auth),
        account_routes.make_router(accounts, auth),
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
    return JSONResponse(models.ErrorBody(kind=kind, message=str(error)).model_dump(), status_code=status)


async def _show_bad_request(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    body = models.ErrorBody(kind="InputError", message=f"the request's {where} is wrong: {first['msg']}.")
    return JSONResponse(body.model_dump(), status_code=422)


async def _show_http_error(request: Request, error: Exception) -> JSONResponse:
    """What the framework refuses by itself: no such route or method, a body that cannot be read."""
    assert isinstance(error, HTTPException)
    kind = "NotFound" if error.status_code == 404 else "InputError"
    message = f"{request.method} {request.url.path}: {error.detail}."
    body = models.ErrorBody(kind=kind, message=message).model_dump()
    return JSONResponse(body, status_code=error.status_code, headers=error.headers)
