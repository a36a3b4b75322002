"""Server: a Service behind sockets, one thread for each connection."""

from __future__ import annotations

import socket
import threading

from trek.errors import ConfigError, OutsideError, PortInUse
from trek.ps.addresses import Address, local_name
from trek.ps.protocol.frames import receive_frame, send_frame
from trek.ps.service import Service
from trek.world.addresses import is_loopback
from trek.world.job_connection import MAX_STRANGERS, Stranger, prove, shut


def listen(address: Address, *, secret: str) -> list[socket.socket]:
    """The sockets of a server: at its port, and on loopback also the Unix socket of the same name."""
    host, port = address
    if not is_loopback(host) and not secret:
        raise ConfigError(
            f"a parameter server at {host} can be reached from other machines, so it needs a secret. "
            "Set TREK_JOB_SECRET, here and for its clients, or listen at 127.0.0.1."
        )
    family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    listeners = [socket.socket(family, socket.SOCK_STREAM)]
    try:
        listeners[0].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listeners[0].bind((host, port))
        if is_loopback(host):
            listeners.append(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            listeners[1].bind(local_name(listeners[0].getsockname()[1]))
        for listener in listeners:
            listener.listen(128)
    except OSError as error:
        for listener in listeners:
            listener.close()
        if port and "in use" in str(error):
            raise PortInUse(f"port {port} of {host} is in use. Choose another one.") from error
        raise OutsideError(f"a parameter server cannot listen at {host}:{port}: {error}.") from error
    return listeners


class Server:
    """Answers requests until it is closed."""

    def __init__(self, service: Service, listeners: list[socket.socket], *, secret: str) -> None:
        self._service = service
        self._secret = secret
        self._listeners = listeners
        self._lock = threading.Lock()
        self._connections: dict[socket.socket, threading.Thread] = {}
        self._strangers = threading.Semaphore(MAX_STRANGERS)
        self._is_closed = False
        self._threads = [
            threading.Thread(target=self._accept, args=(listener,), name="trek-ps-accept", daemon=True)
            for listener in listeners
        ]
        for thread in self._threads:
            thread.start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._listeners[0].getsockname()[1])

    def close(self) -> None:
        """End every connection and all threads."""
        with self._lock:
            self._is_closed = True
            connections = dict(self._connections)
        self._service.close()
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
            thread = threading.Thread(target=self._serve, args=(connection,), name="trek-ps", daemon=True)
            with self._lock:
                if self._is_closed or not self._strangers.acquire(blocking=False):
                    connection.close()
                    continue
                self._connections[connection] = thread
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection:
                try:
                    prove(connection, self._secret, is_server=True)
                finally:
                    self._strangers.release()
                while True:
                    request, body = receive_frame(connection)
                    send_frame(connection, *self._service.answer(request, body))
        except (EOFError, OSError, Stranger):
            return  # it has gone, or does not know the secret
        finally:
            with self._lock:
                self._connections.pop(connection, None)
