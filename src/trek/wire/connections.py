"""Connections between the processes of one job: both sides prove that they know its secret before anything else."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Sequence

from trek.errors import OutsideError
from trek.wire.frames import receive_exactly
from trek.wire.secret import (
    HANDSHAKE_S,
    MAX_UNAUTHENTICATED,
    NONCE_BYTES,
    PROOF_BYTES,
    AuthenticationError,
    Handshake,
)
from trek.world.addresses import is_loopback

_RETRY_S = 0.002


def listen_at(host: str, port: int, *, is_one_machine: bool) -> socket.socket:
    """A socket that listens at the address given, and at no other one of this machine.

    A host name that means loopback here although other machines must reach it (Debian's 127.0.1.1) is the exception.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        if not is_one_machine and is_loopback(str(address[0])):
            family, address = socket.AF_INET, ("", port)
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(128)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        raise OutsideError(
            f"rank 0 cannot listen at {host}:{port}: {error.strerror or error}. "
            "Set MASTER_ADDR to an address of its machine, and MASTER_PORT to a free port."
        ) from error
    return listener


def connect(host: str, port: int, *, secret: str, timeout_s: float) -> socket.socket:
    """A connection to a process of the job, which may not listen yet; ConnectionError when the time is over."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            connection = socket.create_connection((host, port), timeout=max(deadline - time.monotonic(), 0.1))
        except OSError as error:
            if time.monotonic() >= deadline:
                raise ConnectionError(f"no answer at {host}:{port}: {error}") from error
            time.sleep(_RETRY_S)
            continue
        try:
            prove(connection, secret, is_server=False)
        except (AuthenticationError, OSError) as error:
            connection.close()
            raise OutsideError(
                f"the process that listens at {host}:{port} does not belong to this job: it does not know its secret. "
                "Start the job again, or choose another MASTER_PORT."
            ) from error
        return connection


def prove(connection: socket.socket, secret: str, *, is_server: bool) -> None:
    """Prove the secret to the other side, and check its proof; AuthenticationError if it has another, or has closed."""
    connection.settimeout(HANDSHAKE_S)
    if connection.family != socket.AF_UNIX:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    role, peer = ("server", "client") if is_server else ("client", "server")
    handshake = Handshake(secret, role=role, peer=peer)
    try:
        connection.sendall(handshake.nonce)
        nonce = bytes(receive_exactly(connection, NONCE_BYTES))
        if not is_server:
            connection.sendall(handshake.proof(nonce))
        handshake.check(nonce, bytes(receive_exactly(connection, PROOF_BYTES)))
        if is_server:
            connection.sendall(handshake.proof(nonce))
    except EOFError as error:
        raise AuthenticationError from error
    connection.settimeout(None)


def shut(connection: socket.socket) -> None:
    """End both directions, which wakes up the threads that wait for the connection."""
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # it has ended already


class JobServer:
    """Accepts the connections of one job until it is closed, each served by a thread of its own.

    `serve` is called with every connection that has proved the secret, and returns or raises EOFError or OSError when
    the other side has gone. The number of connections that have not proved it yet is limited.
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
        self._unauthenticated = threading.Semaphore(MAX_UNAUTHENTICATED)
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
                if self._is_closed or not self._unauthenticated.acquire(blocking=False):
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
                    self._unauthenticated.release()
                self._serve(connection)
        except (EOFError, OSError, AuthenticationError):
            return  # it has gone, or does not know the secret
        finally:
            with self._lock:
                self._connections.pop(connection, None)
