"""Ticket: one request on its way through the front process. What may happen to it, not where it goes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

MAX_ATTEMPTS = 3
"""Workers that may die over a request until it is given up."""


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


@dataclass(eq=False)
class Ticket:
    """One request. Its `reply` is set once; for a stream, `pieces` are put before that, and None at the end."""

    codec: str
    headers: Mapping[str, str]
    body: bytes
    reply: asyncio.Future[Reply]
    pieces: asyncio.Queue[bytes | None] | None = None
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
            self.pieces.put_nowait(None)

    def may_retry(self) -> bool:
        """Count a worker's death, and say whether another one may try."""
        self.attempts += 1
        return not self.has_begun and self.attempts < MAX_ATTEMPTS and not self.reply.done()
