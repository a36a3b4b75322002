"""The master's HTTP application: assembles the routes and what stands before them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse
from starlette.exceptions import HTTPException

from trek import errors
from trek._version import __version__
from trek.client import models
from trek.control.services import Services
from trek.master.answer_cache import AnswerCache
from trek.master.api_page import POLICY, api_page
from trek.master.auth import Auth
from trek.master.door import LOGIN, OPEN, Door
from trek.master.error_answers import show_bad_request, show_error, show_http_error
from trek.master.etags import EntityTags
from trek.master.login_limits import LoginLimits
from trek.master.routes import (
    accounts,
    archives,
    artifacts,
    checkpoints,
    cluster,
    events,
    experiments,
    flows,
    logs,
    prometheus,
    registry,
    sessions,
    trial_checkpoints,
    trials,
    views,
)
from trek.master.web_page import StrictHeaders
from trek.master.web_page import make_router as make_page_router
from trek.master.web_sessions import WebSessions
from trek.system.clock import Clock, SystemClock

_DOCUMENTED: dict[int | str, dict[str, Any]] = {
    304: {"description": "Unchanged: the client's copy (If-None-Match) is current."},
    400: {"model": models.ErrorBody, "description": "The request is invalid; the message says why."},
    401: {"model": models.ErrorBody, "description": "The token is missing, invalid or expired."},
    403: {"model": models.ErrorBody, "description": "The user is not allowed to do this."},
    404: {"model": models.ErrorBody, "description": "Not found."},
    408: {"model": models.ErrorBody, "description": "The body did not arrive in time."},
    413: {"model": models.ErrorBody, "description": "The body is too large."},
    422: {"model": models.ErrorBody, "description": "The request is malformed."},
    429: {"model": models.ErrorBody, "description": "Too many attempts; repeat after Retry-After seconds."},
    507: {"model": models.ErrorBody, "description": "The disk is full, or a store cannot be reached."},
}


class _Api(FastAPI):
    """Describes itself with its security scheme: a token, for everything but the open routes."""

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI description, made once."""
        if self.openapi_schema is None:
            schema = super().openapi()
            scheme = {
                "type": "http",
                "scheme": "bearer",
                "description": "A token of `trek token create`, or a login's.",
            }
            schema["components"]["securitySchemes"] = {"token": scheme}
            schema["security"] = [{"token": []}]
            for path, item in schema["paths"].items():
                for method, operation in item.items():
                    _describe_errors(operation)
                    is_open = path in OPEN or (method.upper(), path) == LOGIN
                    operation.update({"security": []} if is_open else {})
        assert self.openapi_schema is not None
        return self.openapi_schema


def _describe_errors(operation: dict[str, Any]) -> None:
    """Errors are JSON, also where the answer is something else, such as text or a stream."""
    for status, answer in operation["responses"].items():
        if status.startswith(("4", "5")) and "content" in answer:
            answer["content"] = {"application/json": next(iter(answer["content"].values()))}


def make_app(
    services: Services,
    *,
    token: str,
    stop: Callable[[bool], None],
    is_stopping: Callable[[], bool] = lambda: False,
    on_request: Callable[[], None] = lambda: None,
    web: WebSessions | None = None,
    clock: Clock | None = None,
) -> FastAPI:
    """The application. `stop(kill)` ends the control plane; `on_request` is called while anybody asks or listens."""
    clock = clock or SystemClock()
    web, limits = web or WebSessions(services.accounts, clock=clock), LoginLimits(clock=clock)
    auth = Auth(services, own_token=token, sessions=web)
    app = _Api(title="Trek", version=__version__, docs_url=None, redoc_url=None, responses=_DOCUMENTED)
    app.add_exception_handler(errors.TrekError, show_error)
    app.add_exception_handler(RequestValidationError, show_bad_request)
    app.add_exception_handler(HTTPException, show_http_error)
    app.add_middleware(AnswerCache, version=services.experiments.version, clock=clock)
    app.add_middleware(EntityTags)
    app.add_middleware(Door, auth=auth, sessions=web, on_request=on_request)
    app.add_middleware(StrictHeaders)

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok", "version": __version__}

    page = cache(lambda: api_page(app.openapi()))

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(page(), headers={"content-security-policy": POLICY})

    for router in (
        experiments.make_router(services, auth),
        trials.make_router(services, auth),
        checkpoints.make_router(services, auth),
        trial_checkpoints.make_router(services, auth),
        archives.make_router(services, auth),
        artifacts.make_router(services, auth),
        logs.make_router(services, auth),
        registry.make_router(services, auth),
        accounts.make_router(services, auth, limits=limits),
        sessions.make_router(auth, sessions=web, limits=limits),
        cluster.make_router(services, auth, stop=stop),
        flows.make_router(services, auth),
        views.make_router(services, auth),
        events.make_router(services, auth, is_stopping=is_stopping, on_listening=on_request),
    ):
        app.include_router(router, prefix="/api/v1")
    app.include_router(make_page_router())
    app.include_router(prometheus.make_router(services, auth))
    return app
