"""InferenceApp: the routes that carry tensors, as a bare ASGI application; every other route is passed on.

It reads a body, hands it to a worker as it is, and sends back what the worker made of it: no tensor is ever decoded in
this process.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from trek.listening.limited_body import BodyLimit, LimitedBody, announced_bytes, too_large
from trek.serve.access_log import AccessLog
from trek.serve.admission import is_admitted
from trek.serve.codecs import CONTENT_TYPES
from trek.serve.model_pool import ModelPool
from trek.serve.model_versions import ModelVersions
from trek.serve.serving_metrics import ServingMetrics
from trek.serve.settings import ServeSettings
from trek.serve.tickets import Pieces, Refused, Reply, Ticket, error_reply

_ROUTE = re.compile(r"/v2/models/([^/]+)(?:/versions/([^/]+))?/(infer|generate_stream)")
_PLAIN = {"/predict": "infer", "/predict/stream": "generate_stream"}
_OPEN = ("/v2/health/live", "/v2/health/ready")
_PASSED_ON = (b"inference-header-content-length",)
"""Of a request's headers, those that codecs read."""


@dataclass
class _Route:
    model: str | None
    version: str | None
    is_stream: bool
    is_plain: bool


class InferenceApp:
    """Checks the key, limits bodies, and answers inference; `rest` answers everything else."""

    def __init__(
        self,
        versions: ModelVersions,
        rest: ASGIApp,
        *,
        settings: ServeSettings,
        metrics: ServingMetrics,
        access_log: AccessLog | None = None,
        is_allowed: Callable[[str], Awaitable[bool]] | None = None,
    ) -> None:
        """`is_allowed` says whether a token other than the key of the settings is accepted."""
        self._versions = versions
        self._rest = rest
        self._settings = settings
        self._metrics = metrics
        self._log = access_log
        self._is_allowed = is_allowed
        self._limit = BodyLimit(settings.max_body_bytes, timeout_s=max(60.0, settings.max_body_mb))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._rest(scope, receive, send)
            return
        began_s = time.perf_counter()
        facts: dict[str, Any] = {"version": ""}
        if not await self._may_enter(scope):
            refusal = Reply(401, b'{"error": "a valid key is required."}', headers=_CHALLENGE)
            await _send(send, refusal)
            self._record(scope, refusal, time.perf_counter() - began_s, facts)
            return
        route = _find_route(scope)
        if route is None:
            await self._rest(scope, receive, send)
            return
        try:
            reply = await self._answer(scope, LimitedBody(receive, self._limit), send, route, facts)
        except Refused as refused:
            reply = refused.reply
        except HTTPException as error:  # the body is too large, or too slow
            reply = replace(error_reply(error.status_code, f"{error.detail}."), headers=error.headers or {})
        if not facts.pop("is_sent", False):
            await _send(send, reply)
        self._record(scope, reply, time.perf_counter() - began_s, facts)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, route: _Route, facts: dict[str, Any]) -> Reply:
        if route.model is not None and route.model != self._settings.name:
            raise Refused(error_reply(404, f"model {route.model!r} does not exist. There is: {self._settings.name}."))
        _require_plain_body(scope)
        body = await self._read(scope, receive)
        loop = asyncio.get_running_loop()
        pieces = Pieces() if route.is_stream else None
        ticket = Ticket(_codec(scope, route), _passed_on(scope), body, loop.create_future(), pieces)
        pool = self._versions.find(route.version)
        facts |= {"version": pool.version, "bytes": len(body)}
        pool.submit(ticket)
        if pieces is None:
            return await _reply(ticket, pool, receive)
        try:
            return await _send_stream(ticket, pieces, receive, send, facts)
        finally:
            pool.cancel(ticket)

    async def _may_enter(self, scope: Scope) -> bool:
        if scope["path"] in _OPEN:
            return True
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        return await is_admitted(given, key=self._settings.key, is_allowed=self._is_allowed)

    async def _read(self, scope: Scope, receive: Receive) -> bytes:
        if announced_bytes(scope) > self._limit.max_bytes:
            raise HTTPException(413, too_large(self._limit))
        parts, is_more = [], True
        while is_more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Refused(error_reply(499, "the caller has gone."))
            parts.append(message.get("body", b""))
            is_more = message.get("more_body", False)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _record(self, scope: Scope, reply: Reply, duration_s: float, facts: dict[str, Any]) -> None:
        self._metrics.count_request(version=facts["version"], status=reply.status, duration_s=duration_s)
        if self._log is not None:
            client = (scope.get("client") or ("",))[0]
            self._log.write(
                method=scope["method"],
                path=scope["path"],
                status=reply.status,
                duration_s=duration_s,
                client=client,
                **facts,
            )


_CHALLENGE = {"www-authenticate": "Bearer"}


def _find_route(scope: Scope) -> _Route | None:
    if scope["method"] != "POST":
        return None
    path = scope["path"]
    if path in _PLAIN:
        return _Route(None, None, _PLAIN[path] != "infer", is_plain=True)
    found = _ROUTE.fullmatch(path)
    return found and _Route(found[1], found[2], found[3] != "infer", is_plain=found[3] != "infer")


def _require_plain_body(scope: Scope) -> None:
    encoding = next((value for name, value in scope["headers"] if name == b"content-encoding"), b"identity")
    if encoding.strip().lower() != b"identity":
        shown = encoding.decode("latin-1")
        raise Refused(error_reply(415, f"the Content-Encoding {shown!r} is not supported. Send the body as it is."))


def _codec(scope: Scope, route: _Route) -> str:
    if not route.is_plain:
        return "v2"
    given = next((value for name, value in scope["headers"] if name == b"content-type"), b"")
    kind = given.decode("latin-1").partition(";")[0].strip().lower()
    codec = CONTENT_TYPES.get(kind)
    if codec is None:
        known = ", ".join(name for name in CONTENT_TYPES if name)
        raise Refused(error_reply(415, f"the Content-Type {kind!r} is not supported. Use one of: {known}."))
    return codec


def _passed_on(scope: Scope) -> dict[str, str]:
    return {name.decode(): value.decode("latin-1") for name, value in scope["headers"] if name in _PASSED_ON}


async def _reply(ticket: Ticket, pool: ModelPool, receive: Receive) -> Reply:
    """The reply; the work is saved if the caller goes while the request still waits."""
    if ticket.timer is None:  # a worker has it
        return await ticket.reply
    gone = asyncio.ensure_future(_until_gone(receive))
    gone.add_done_callback(lambda _: pool.cancel(ticket))
    try:
        return await ticket.reply
    finally:
        gone.cancel()


async def _send(send: Send, reply: Reply) -> None:
    headers = [
        (b"content-type", reply.content_type.encode()),
        (b"content-length", str(len(reply.body)).encode()),
        *((name.encode(), value.encode()) for name, value in reply.headers.items()),
    ]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})


async def _send_stream(ticket: Ticket, pieces: Pieces, receive: Receive, send: Send, facts: dict[str, Any]) -> Reply:
    """Server-sent events: one for each piece, and one called `error` if the model failed after the first."""
    first = await pieces.take()
    if first is None and (reply := await ticket.reply).status != 200:
        return reply
    facts["is_sent"] = True
    headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    gone = asyncio.ensure_future(_until_gone(receive))
    try:
        piece = first
        while piece is not None and not gone.done():
            await send(_event(b"data: " + piece))
            following = asyncio.ensure_future(pieces.take())
            await asyncio.wait([following, gone], return_when=asyncio.FIRST_COMPLETED)
            piece = following.result() if following.done() else None
            following.cancel()
        if gone.done():
            return error_reply(499, "the caller has gone.")
        reply = await ticket.reply
        if reply.status != 200:
            await send(_event(b"event: error\ndata: " + reply.body))
        await send({"type": "http.response.body", "body": b""})
        return reply
    finally:
        gone.cancel()


def _event(text: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": text + b"\n\n", "more_body": True}


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
