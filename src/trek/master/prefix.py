"""An application under a path that a proxy offers it at, whether the proxy takes the path off or leaves it."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send


class UnderPrefix:
    """Wraps an application; an empty prefix changes nothing."""

    def __init__(self, app: ASGIApp, *, prefix: str) -> None:
        self._app = app
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand the request on with the whole path, and say which part of it is ours."""
        if self._prefix and scope["type"] in ("http", "websocket"):
            path = scope["path"]
            whole = path if path.startswith(f"{self._prefix}/") else self._prefix + path
            scope = {**scope, "path": whole, "root_path": self._prefix}
        await self._app(scope, receive, send)
