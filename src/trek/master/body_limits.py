"""Body limits: how large a request's body may be and how long it may take, enforced while it arrives."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass

from starlette.exceptions import HTTPException
from starlette.types import Message, Receive

from trek.control.checkpoints.trial_checkpoints import MAX_BYTES as MAX_CHECKPOINT_BYTES
from trek.experiments.package import MAX_BYTES
from trek.world.artifact_names import MAX_BYTES as MAX_ARTIFACT_BYTES


@dataclass(frozen=True)
class BodyLimit:
    """The largest body in bytes, and the time in which all of it must arrive."""

    max_bytes: int
    timeout_s: float = 60.0


_LIMITS: tuple[tuple[str, re.Pattern[str], BodyLimit], ...] = (
    ("POST", re.compile(r"/api/v1/(login|session)"), BodyLimit(16 * 2**10, timeout_s=10.0)),
    ("PUT", re.compile(r"/api/v1/archives/[^/]*"), BodyLimit(MAX_BYTES, timeout_s=600.0)),
    ("PUT", re.compile(r"/api/v1/trials/[^/]*/artifacts"), BodyLimit(MAX_ARTIFACT_BYTES, timeout_s=600.0)),
    ("PUT", re.compile(r"/api/v1/trials/[^/]*/checkpoints/[^/]*"), BodyLimit(MAX_CHECKPOINT_BYTES, timeout_s=7200.0)),
    ("POST", re.compile(r"/api/v1/trials/[^/]*/reports"), BodyLimit(64 * 2**20)),
    ("PUT", re.compile(r"/api/v1/flows/[^/]*/runs/.*"), BodyLimit(32 * 2**20)),
)
_OTHERS = BodyLimit(4 * 2**20)


def body_limit(method: str, path: str) -> BodyLimit:
    """The limit of a route; `path` is without the prefix of a proxy."""
    found = (limit for verb, pattern, limit in _LIMITS if verb == method and pattern.fullmatch(path))
    return next(found, _OTHERS)


class LimitedBody:
    """A `receive` that raises 413 or 408 as soon as the body exceeds its limit."""

    def __init__(self, receive: Receive, limit: BodyLimit) -> None:
        self._receive = receive
        self._limit = limit
        self._num_bytes = 0
        self._is_complete = False
        self._deadline_s = asyncio.get_running_loop().time() + limit.timeout_s

    async def __call__(self) -> Message:
        """The next part of the body; after its end, whatever comes."""
        if self._is_complete:
            return await self._receive()
        message = await self._next()
        if message["type"] == "http.request":
            self._num_bytes += len(message.get("body", b""))
            self._is_complete = not message.get("more_body", False)
            if self._num_bytes > self._limit.max_bytes:
                raise HTTPException(413, too_large(self._limit))
        return message

    async def _next(self) -> Message:
        try:
            async with asyncio.timeout_at(self._deadline_s):
                return await self._receive()
        except TimeoutError:
            raise HTTPException(
                408, f"the body did not arrive within {self._limit.timeout_s:.0f} seconds", {"connection": "close"}
            ) from None


def too_large(limit: BodyLimit) -> str:
    """What to tell a client whose body is over the limit."""
    return f"the body exceeds the limit of {limit.max_bytes} bytes"
