"""JobServer: accepts the connections of one job, each served by a thread of its own.

Whoever connects proves the job's secret first. The number of connections that have not done so yet is limited.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Sequence

from trek.wire.job_connection import MAX_STRANGERS, Stranger, prove, shut


class JobServer:
    """Serves until it is closed.

    `serve` is called with every connection that has proved the secret, and returns or raises EOFError or OSError when
    the other side has gone.
    """

    def __init__(
        self, listeners: Sequence[socket.socket], *, secret: str, serve: Callable[[socket.socket], None], name: str
    ) -> None:
        self._listeners = listeners
        self._secret = secret
        self._serve = serve
        self._name = name
        self._lock = threading.Lock()
        self._connections: dict[socket.socket, threading.Thread] = {}
        self._strangers = threading.Semaphore(MAX_STRANGERS)
        self._is_closed = False
        self._threads = [
            threading.Thread(target=self._accept, args=(listener,), name=f"{name}-accept", daemon=True)
            for listener in listeners
        ]
        for thread in self._threads:
            thread.start()

    @property
    def port(self) -> int:
        """Where the first of its listeners listens."""
        return int(self._listeners[0].getsockname()[1])

    @property
    def num_connections(self) -> int:
        """How many are connected now."""
        with self._lock:
            return len(self._connections)

    def close(self) -> None:
        """End every connection and all threads."""
        with self._lock:
            self._is_closed = True
            connections = dict(self._connections)
        for one in (*self._listeners, *connections):
            shut(one)
        for thread in (*self._threads, *connections.values()):
            thread.join()
        for listener in self._listeners:
            listener.close()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:  # closed
                return
            thread = threading.Thread(target=self._admit, args=(connection,), name=self._name, daemon=True)
            with self._lock:
                if self._is_closed or not self._strangers.acquire(blocking=False):
                    connection.close()
                    continue
                self._connections[connection] = thread
            thread.start()

    def _admit(self, connection: socket.socket) -> None:
        try:
            with connection:
                try:
                    prove(connection, self._secret, is_server=True)
                finally:
                    self._strangers.release()
                self._serve(connection)
        except (EOFError, OSError, Stranger):
            return  # it has gone, or does not know the secret
        finally:
            with self._lock:
                self._connections.pop(connection, None)
