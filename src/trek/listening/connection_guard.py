"""ConnectionGuard: closes connections that only take up room, so that idle or slow clients cannot lock others out.

uvicorn limits neither how long a client may take to send the head of its first request, nor how long one may take to
read an answer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from trek.system.clock import Clock

T = TypeVar("T")
HEAD_TIMEOUT_S = 10.0
STALL_TIMEOUT_S = 60.0
MAX_IDLE = 500


@dataclass(frozen=True)
class Wait:
    """What a connection is waiting for, and since when. Another `progress` is another wait."""

    kind: str
    progress: object
    since_s: float


def to_close(waits: Mapping[T, Wait], *, now_s: float, max_idle: int) -> list[T]:
    """Those that waited too long, and the oldest idle ones over the limit. Pure."""
    limits = {"request": HEAD_TIMEOUT_S, "reader": STALL_TIMEOUT_S}
    late = [one for one, wait in waits.items() if now_s - wait.since_s >= limits[wait.kind]]
    idle = sorted(
        (wait.since_s, number, one) for number, (one, wait) in enumerate(waits.items()) if wait.kind == "request"
    )
    over = [one for _, _, one in idle[: max(0, len(idle) - max_idle)]]
    return [*late, *(one for one in over if one not in late)]


class ConnectionGuard:
    """Watches uvicorn's connections; `sweep` is called several times a second, on the event loop."""

    def __init__(self, connections: Collection[Any], *, clock: Clock, max_idle: int = MAX_IDLE) -> None:
        self._connections = connections
        self._clock = clock
        self._max_idle = max_idle
        self._waits: dict[Any, Wait] = {}

    def sweep(self) -> None:
        """Close what takes up room for too long."""
        now_s = self._clock.monotonic_s()
        found = {one: wait for one in list(self._connections) if (wait := _wait_of(one, now_s)) is not None}
        self._waits = {one: _earlier(self._waits.get(one), wait) for one, wait in found.items()}
        for one in to_close(self._waits, now_s=now_s, max_idle=self._max_idle):
            one.transport.abort()


def _wait_of(connection: Any, now_s: float) -> Wait | None:
    """What a connection waits for at present: a request, or that its client reads; None if for the application."""
    if connection.cycle is None or connection.cycle.response_complete:
        return Wait("request", connection.cycle, now_s)  # each request has a cycle of its own
    if connection.flow.write_paused:
        return Wait("reader", connection.transport.get_write_buffer_size(), now_s)
    return None


def _earlier(before: Wait | None, now: Wait) -> Wait:
    return before if before is not None and (before.kind, before.progress) == (now.kind, now.progress) else now
