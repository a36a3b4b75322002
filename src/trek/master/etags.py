"""ETags: a client whose copy is current gets 304 and no body."""

from __future__ import annotations

import hashlib

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class EntityTags:
    """Middleware: adds an ETag of the content to JSON answers to GET. Streams are left alone."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, with a tag where the answer can have one."""
        if scope["type"] == "http" and scope["method"] == "GET":
            send = _TaggedAnswer(send, known=Headers(scope=scope).get("if-none-match", ""))
        await self._app(scope, receive, send)


class _TaggedAnswer:
    """A `send` that holds a JSON answer back until it is complete and its tag known."""

    def __init__(self, send: Send, *, known: str) -> None:
        self._send = send
        self._known = [one.strip().removeprefix("W/") for one in known.split(",")]
        self._start: Message | None = None
        self._parts: list[bytes] = []

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start" and _is_tagged(message):
            self._start = message
        elif self._start is None:
            await self._send(message)
        else:
            self._parts.append(message.get("body", b""))
            if not message.get("more_body", False):
                await self._finish(self._start, b"".join(self._parts))

    async def _finish(self, start: Message, body: bytes) -> None:
        headers = MutableHeaders(raw=list(start["headers"]))
        headers["etag"] = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        status = start["status"]
        if headers["etag"] in self._known:
            status, body = 304, b""
            del headers["content-type"], headers["content-length"]
        await self._send({**start, "status": status, "headers": headers.raw})
        await self._send({"type": "http.response.body", "body": body})


def _is_tagged(start: Message) -> bool:
    content_type = Headers(raw=start["headers"]).get("content-type", "")
    return start["status"] == 200 and content_type.startswith("application/json")
