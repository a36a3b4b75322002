"""Server: a Service behind sockets, one thread for each connection."""

from __future__ import annotations

import socket

from trek.errors import ConfigError, OutsideError, PortInUse
from trek.ps.addresses import Address, local_name
from trek.ps.protocol.frames import ReusedMemory, receive_envelope, request_parts
from trek.ps.service import Service
from trek.wire.connections import JobServer
from trek.wire.frames import FrameReader, send_all, set_send_buffer
from trek.world.addresses import is_loopback


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
        self._server = JobServer(listeners, secret=secret, serve=self._serve, name="trek-ps")

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._server.port

    @property
    def num_clients(self) -> int:
        """How many are connected now."""
        return self._server.num_connections

    def close(self) -> None:
        """End every connection and all threads."""
        self._service.close()
        self._server.close()

    def _serve(self, connection: socket.socket) -> None:
        set_send_buffer(connection)
        frames = FrameReader(connection, allocate=ReusedMemory())
        while True:
            send_all(connection, request_parts(*self._service.answer(*receive_envelope(frames))))
