"""Connections between the processes of one job: framed JSON, after both sides have proved that they know its secret.

Each side answers the other's random challenge with an HMAC. What follows travels unencrypted, so between machines the
network itself must be trusted; a stranger who can merely connect learns and changes nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import socket
import struct
import time
from typing import Any

from trek.errors import OutsideError
from trek.world.addresses import is_loopback

HANDSHAKE_S = 10.0
"""How long a connection may take to prove that it knows the secret."""
MAX_STRANGERS = 64
"""Connections that have not proved it yet; a server closes more at once."""
MAX_MESSAGE_BYTES = 64 << 20
_RETRY_S = 0.002
NONCE_BYTES, PROOF_BYTES = 32, 32


class Stranger(Exception):
    """The other side does not know the secret."""


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
        except (Stranger, OSError) as error:
            connection.close()
            raise OutsideError(
                f"the process that listens at {host}:{port} does not belong to this job: it does not know its secret. "
                "Start the job again, or choose another MASTER_PORT."
            ) from error
        return connection


def prove(connection: socket.socket, secret: str, *, is_server: bool) -> None:
    """Convince the other side that this one knows the secret, and be convinced in turn; `Stranger` if it does not.

    The side that connected proves it first: nobody gets an answer to a challenge of their own choice from a server.
    """
    connection.settimeout(HANDSHAKE_S)
    if connection.family != socket.AF_UNIX:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    own = os.urandom(NONCE_BYTES)
    connection.sendall(own)
    other = _receive_exactly(connection, NONCE_BYTES)
    nonces = own + other if is_server else other + own
    mine, theirs = ("server", "client") if is_server else ("client", "server")
    if not is_server:
        connection.sendall(proof(secret, mine, nonces))
    if not hmac.compare_digest(_receive_exactly(connection, PROOF_BYTES), proof(secret, theirs, nonces)):
        raise Stranger
    if is_server:
        connection.sendall(proof(secret, mine, nonces))
    connection.settimeout(None)


def proof(secret: str, role: str, challenge: bytes) -> bytes:
    """What only a process that knows the secret can answer to a challenge."""
    return hmac.new(secret.encode(), role.encode() + b"\0" + challenge, hashlib.sha256).digest()


def send_message(connection: socket.socket, message: Any) -> None:
    """Send a value that JSON can hold."""
    body = json.dumps(message).encode()
    connection.sendall(struct.pack("!I", len(body)) + body)


def receive_message(connection: socket.socket) -> Any:
    """The next value that the other side sent; EOFError when it has closed the connection."""
    try:
        (length,) = struct.unpack("!I", _receive_exactly(connection, 4))
        if length > MAX_MESSAGE_BYTES:
            raise EOFError
        return json.loads(_receive_exactly(connection, length))
    except Stranger:
        raise EOFError from None


def shut(connection: socket.socket) -> None:
    """End both directions, which wakes up the threads that wait for the connection."""
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # it has ended already


def _receive_exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise Stranger
        data += part
    return data
