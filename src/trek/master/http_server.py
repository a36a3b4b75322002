"""HttpServer: uvicorn as the control plane needs it: its signals left alone, its connections watched."""

from __future__ import annotations

import contextlib
import resource
import socket
from collections.abc import Iterator, Sequence

import uvicorn
from anyio import to_thread
from starlette.types import ASGIApp

from trek.master.connection_guard import MAX_IDLE, ConnectionGuard
from trek.world.clock import Clock

MAX_FILES = 16_384
NUM_THREADS = 4
"""Threads that answer requests. Python runs one at a time, and with more of them the event loop waits for its turn."""


class HttpServer(uvicorn.Server):
    """Leaves signals to the control plane, which ends the trials before it stops listening."""

    def __init__(self, config: uvicorn.Config, *, clock: Clock, max_idle: int = MAX_IDLE) -> None:
        super().__init__(config)
        self._guard = ConnectionGuard(self.server_state.connections, clock=clock, max_idle=max_idle)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen."""
        to_thread.current_default_thread_limiter().total_tokens = NUM_THREADS
        await super().startup(sockets)

    async def on_tick(self, counter: int) -> bool:
        """Called ten times a second."""
        self._guard.sweep()
        return await super().on_tick(counter)


def server_config(app: ASGIApp, *, trusted_proxies: Sequence[str] = ()) -> uvicorn.Config:
    """How uvicorn serves `app`. X-Forwarded-For is believed from `trusted_proxies` alone."""
    return uvicorn.Config(
        app,
        log_level="warning",
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=5,
        proxy_headers=bool(trusted_proxies),
        forwarded_allow_ips=list(trusted_proxies),
    )


def allow_many_files() -> int:
    """Raise the number of files and connections this process may have open as far as it may; returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return soft
