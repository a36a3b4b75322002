"""Serves an application under a path prefix behind a proxy, whether or not the proxy strips the prefix."""

from __future__ import annotations

from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send


class UnderPrefix:
    """Wraps an application; an empty prefix changes nothing."""

    def __init__(self, app: ASGIApp, *, prefix: str) -> None:
        self._app = app
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with its full path, and the prefix as its root path."""
        if self._prefix and scope["type"] in ("http", "websocket"):
            path = scope["path"]
            if path == self._prefix:  # the page's own links are relative to the folder
                return await RedirectResponse(f"{self._prefix}/", status_code=308)(scope, receive, send)
            whole = path if path.startswith(f"{self._prefix}/") else self._prefix + path
            scope = {**scope, "path": whole, "root_path": self._prefix}
        return await self._app(scope, receive, send)
