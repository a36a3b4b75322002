"""LimitedBody: how large a request's body may be and how long it may take, enforced while it arrives."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive, Scope


@dataclass(frozen=True)
class BodyLimit:
    """The largest body in bytes, and the time in which all of it must arrive."""

    max_bytes: int
    timeout_s: float = 60.0


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


def announced_bytes(scope: Scope) -> int:
    """The length that the head of a request announces; 0 if it announces none."""
    length = Headers(scope=scope).get("content-length", "0")
    return int(length) if length.isascii() and length.isdigit() else 0
