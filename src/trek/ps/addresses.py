"""Where parameter servers are: `host:port`. On this machine, a Unix socket of the same name carries the tensors.

A Unix socket moves rows in half the time of TCP (`benchmarks/ps/transports.py`). Its name lies in Linux's abstract
namespace, which containers share exactly when they share loopback; it is bound together with the port.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

from trek.engines.member_folder import ADDRESSES, MEMBER_DIR, MemberFolder
from trek.errors import ConfigError
from trek.wire.connections import prove
from trek.wire.secret import AuthenticationError
from trek.world.addresses import is_loopback

Address = tuple[str, int]
SERVER_ADDRESSES = "TREK_SERVER_ADDRESSES"
SERVER_FOLDER = "TREK_SERVER_FOLDER"
"""Where the servers of a job keep their journals: a server that is started again must find its own."""


def parse_address(text: str) -> Address:
    """`host:port`."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConfigError(f"a parameter server's address must be host:port, got {text!r}.")
    return host, int(port)


def current_address(first: Address, *, environ: Mapping[str, str] = os.environ) -> Address:
    """Where the server is that was at `first` when this process was started: an Engine may have moved it."""
    if MEMBER_DIR not in environ:
        return first
    told = (MemberFolder.from_env(environ).read(ADDRESSES) or b"").decode()
    moved = next((line.partition("=")[2] for line in told.splitlines() if line.startswith("server=")), "")
    known = [parse_address(one) for one in environ.get(SERVER_ADDRESSES, "").split(",") if one]
    now = [one for one in moved.split(",") if one]
    return parse_address(now[known.index(first)]) if first in known and len(now) >= len(known) else first


def local_name(port: int) -> str:
    """The Unix socket of a server that listens at `port` of loopback."""
    return f"\0trek-ps-{port}"


def open_connection(address: Address, *, secret: str, timeout_s: float) -> socket.socket:
    """A connection to a server, after both sides have proved that they know the secret.

    OSError if it is not there, or not ready; AuthenticationError if it has another secret, or ended at this moment.
    """
    host, port = address
    if is_loopback(host):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(timeout_s)
            connection.connect(local_name(port))
        except OSError:
            connection.close()
            raise
    else:
        connection = socket.create_connection(address, timeout=timeout_s)
    try:
        prove(connection, secret, is_server=False)
    except (AuthenticationError, OSError):
        connection.close()
        raise
    return connection
