"""HttpServer: uvicorn as Trek's servers need it: its signals left alone, its connections watched."""

from __future__ import annotations

import contextlib
import errno
import resource
import socket
from collections.abc import Callable, Iterator, Sequence

import uvicorn
from anyio import to_thread
from starlette.types import ASGIApp

from trek.errors import OutsideError, PortInUse
from trek.listening.connection_guard import MAX_IDLE, ConnectionGuard
from trek.system.clock import Clock

MAX_FILES = 16_384
NUM_THREADS = 4
"""Threads that answer requests. Python runs one at a time, and with more of them the event loop waits for its turn."""


class HttpServer(uvicorn.Server):
    """Leaves signals to its owner, which has more to end than a socket. `on_started` is called when it listens."""

    def __init__(
        self,
        config: uvicorn.Config,
        *,
        clock: Clock,
        max_idle: int = MAX_IDLE,
        on_started: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(config)
        self._guard = ConnectionGuard(self.server_state.connections, clock=clock, max_idle=max_idle)
        self._on_started = on_started

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen."""
        to_thread.current_default_thread_limiter().total_tokens = NUM_THREADS
        await super().startup(sockets)
        self._on_started()

    async def on_tick(self, counter: int) -> bool:
        """Called ten times a second."""
        self._guard.sweep()
        return await super().on_tick(counter)


def server_config(app: ASGIApp, *, grace_s: int = 5, trusted_proxies: Sequence[str] = ()) -> uvicorn.Config:
    """How uvicorn serves `app`; open requests have `grace_s` to end. X-Forwarded-For is believed from proxies alone."""
    return uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=grace_s,
        proxy_headers=bool(trusted_proxies),
        forwarded_allow_ips=list(trusted_proxies),
    )


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 is a free one. PortInUse if another program has the port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio switches Nagle's algorithm off only where the protocol is named; with it, an answer waits 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(1024)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise PortInUse(f"port {port} on {host} is in use by another program. Choose another --port.") from error
        raise OutsideError(f"cannot listen on {host}:{port}: {error.strerror}. Check --host and --port.") from error
    return listener


def allow_many_files() -> int:
    """Raise the number of files and connections this process may have open as far as it may; returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return soft
