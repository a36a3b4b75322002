"""Ticket: one request on its way through the front process. What may happen to it, not where it goes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

MAX_ATTEMPTS = 3
"""Workers that may die over a request until it is given up."""


MAX_HELD_BYTES = 1 << 20
"""Of a stream whose reader is slower than the model."""


@dataclass
class Reply:
    """What is sent back."""

    status: int
    body: bytes
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


class Refused(Exception):
    """The request is not taken; the reply says why, and when to try again."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply.body.decode())
        self.reply = reply


def error_reply(status: int, message: str, *, retry_after_s: int | None = None) -> Reply:
    """A reply in the form that the Open Inference Protocol gives to errors."""
    headers = {} if retry_after_s is None else {"retry-after": str(retry_after_s)}
    return Reply(status, json.dumps({"error": message}).encode(), headers=headers)


class Pieces:
    """The pieces of a stream that its reader has not taken yet. Who adds them waits for room, so they stay few."""

    def __init__(self) -> None:
        self._held: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._num_bytes = 0
        self._is_over = False
        self._has_room = asyncio.Event()
        self._has_room.set()

    @property
    def is_full(self) -> bool:
        """Whether the next piece should wait for `room`."""
        return not self._has_room.is_set()

    def add(self, piece: bytes) -> None:
        """The next piece; dropped after the end."""
        if self._is_over:
            return
        self._num_bytes += len(piece)
        self._held.put_nowait(piece)
        if self._num_bytes >= MAX_HELD_BYTES:
            self._has_room.clear()

    def end(self) -> None:
        """No more pieces come, or are read."""
        self._is_over = True
        self._has_room.set()
        self._held.put_nowait(None)

    async def take(self) -> bytes | None:
        """The next piece; None at the end."""
        piece = await self._held.get()
        self._num_bytes -= len(piece or b"")
        if self._num_bytes < MAX_HELD_BYTES:
            self._has_room.set()
        return piece

    async def room(self) -> None:
        """Until there is room for another piece."""
        await self._has_room.wait()


@dataclass(eq=False)
class Ticket:
    """One request. Its `reply` is set once; for a stream, `pieces` are added before that, and then end."""

    codec: str
    headers: Mapping[str, str]
    body: bytes
    reply: asyncio.Future[Reply]
    pieces: Pieces | None = None
    attempts: int = 0
    has_begun: bool = False
    """Whether pieces of a stream were sent, so that it cannot be done again."""
    timer: asyncio.TimerHandle | None = None
    """Runs while it waits: it must be taken before."""
    num_extensions: int = 0
    """How often it was given more time to wait."""

    @property
    def is_alone(self) -> bool:
        """Whether it must not share a batch: it is a stream, or a worker died over it and it may be the cause."""
        return self.pieces is not None or self.attempts > 0

    def stop_timer(self) -> None:
        """It waits no longer."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def answer(self, reply: Reply) -> None:
        """Set the reply, unless it has one."""
        if not self.reply.done():
            self.reply.set_result(reply)
        if self.pieces is not None:
            self.pieces.end()

    def may_retry(self) -> bool:
        """Count a worker's death, and say whether another one may try."""
        self.attempts += 1
        return not self.has_begun and self.attempts < MAX_ATTEMPTS and not self.reply.done()
