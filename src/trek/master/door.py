"""Door: the first thing a request meets. It finds out who sent it before a byte of the body is read.

What the user may do is decided by the routes (`auth`); here only the open routes are let in without a token.
"""

from __future__ import annotations

from collections.abc import Callable

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from trek.errors import TrekError
from trek.listening.limited_body import BodyLimit, LimitedBody, announced_bytes, too_large
from trek.master.auth import Auth
from trek.master.body_limits import body_limit
from trek.master.error_answers import error_answer, show_http_error
from trek.master.web_page import is_page
from trek.master.web_sessions import WebSessions, check_csrf

OPEN = frozenset({"/health", "/docs", "/openapi.json", "/api/v1/login"})
"""Paths that need no token; every other path does, known or not, but for those of the page and for logging in there."""
LOGIN = ("POST", "/api/v1/session")


class Door:
    """Middleware: identifies the sender and limits the body. `on_request` is called for every request."""

    def __init__(self, app: ASGIApp, *, auth: Auth, sessions: WebSessions, on_request: Callable[[], None]) -> None:
        self._app = app
        self._auth = auth
        self._sessions = sessions
        self._on_request = on_request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer it with 401 or 413."""
        if scope["type"] == "http":
            self._on_request()
            path = scope["path"].removeprefix(scope.get("root_path", ""))
            limit = body_limit(scope["method"], path)
            refusal = await self._refusal(scope, path, limit)
            await (refusal or self._app)(scope, LimitedBody(receive, limit), send)
        else:
            await self._app(scope, receive, send)

    async def _refusal(self, scope: Scope, path: str, limit: BodyLimit) -> Response | None:
        try:
            if path not in OPEN and not is_page(path) and (scope["method"], path) != LOGIN:
                await self._identify(scope)
        except TrekError as error:
            return error_answer(error)
        if announced_bytes(scope) > limit.max_bytes:
            return await show_http_error(Request(scope), HTTPException(413, too_large(limit)))
        return None

    async def _identify(self, scope: Scope) -> None:
        """Remember the sender for the routes. Most are known without a query, which would need a thread."""
        headers = Headers(scope=scope)
        credentials = self._sessions.credentials(headers)
        known = self._auth.recognise(credentials.token)
        identity = known if known is not None else await run_in_threadpool(self._auth.find, credentials.token)
        check_csrf(credentials, method=scope["method"], headers=headers)
        scope.setdefault("state", {}).update(
            identity=identity, token=credentials.token, is_cookie=credentials.is_cookie
        )
