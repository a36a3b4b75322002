"""Connections: the sockets of one process group, which another thread may shut to wake up whoever waits for a peer.

A peer that is killed closes its connections itself. One that hangs does not, and a collective with it would wait for as
long as the group's timeout allows. gloo cannot be told to give up, but its sockets are known: they are those that this
process has opened while the group was formed.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from trek.strategies.job_store import JobStore
from trek.wire.connections import shut

_FDS = Path("/proc/self/fd")


class Connections:
    """Of one group. `abandon` may be called at any time, from any thread, and holds for what is added later too."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_abandoned = False
        self._connections: list[socket.socket | JobStore] = []
        self._before: dict[int, str] | None = None
        """While gloo connects: the sockets that were open before."""
        self._of_gloo: dict[int, str] = {}

    def add(self, connection: socket.socket | JobStore) -> None:
        """Shut this one too when the group is abandoned."""
        with self._lock:
            self._connections.append(connection)
            if self._is_abandoned:
                _end(connection)

    @contextmanager
    def made_by_gloo(self) -> Iterator[None]:
        """Around the call that makes gloo connect."""
        self._before = _open_sockets()
        try:
            yield
        finally:
            with self._lock:
                self._of_gloo, self._before = _new_sockets(self._before), None
                if self._is_abandoned:
                    self._shut_gloo()

    def abandon(self) -> None:
        """End them all: what waits in a collective raises."""
        with self._lock:
            self._is_abandoned = True
            for connection in self._connections:
                _end(connection)
            self._shut_gloo()

    def _shut_gloo(self) -> None:
        ours = self._of_gloo if self._before is None else _new_sockets(self._before)
        still_open = _open_sockets()
        for fd, name in ours.items():
            if still_open.get(fd) == name:
                _shut_fd(fd)


def _end(connection: socket.socket | JobStore) -> None:
    if isinstance(connection, JobStore):
        connection.abandon()
    else:
        shut(connection)


def _open_sockets() -> dict[int, str]:
    """By descriptor, the name that the kernel has for the socket; empty where the kernel does not say."""
    found = {}
    with suppress(FileNotFoundError):
        for fd in os.listdir(_FDS):  # noqa: PTH208
            with suppress(OSError):  # closed meanwhile
                name = str((_FDS / fd).readlink())
                if name.startswith("socket:"):
                    found[int(fd)] = name
    return found


def _new_sockets(before: dict[int, str]) -> dict[int, str]:
    return {fd: name for fd, name in _open_sockets().items() if before.get(fd) != name}


def _shut_fd(fd: int) -> None:
    """A socket that listens is left alone: gloo ends the process if it cannot accept."""
    with suppress(OSError), socket.socket(fileno=os.dup(fd)) as copy:
        if not copy.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            shut(copy)
