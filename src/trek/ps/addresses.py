"""Where parameter servers are: `host:port`. On this machine, a Unix socket of the same name carries the tensors.

A Unix socket moves rows in half the time of TCP (`benchmarks/ps/transports.py`). Its name lies in Linux's abstract
namespace, which containers share exactly when they share loopback; it is bound together with the port.
"""

from __future__ import annotations

import socket

from trek.errors import ConfigError
from trek.world.addresses import is_loopback
from trek.world.job_connection import Stranger, prove

Address = tuple[str, int]


def parse_address(text: str) -> Address:
    """`host:port`."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConfigError(f"a parameter server's address must be host:port, got {text!r}.")
    return host, int(port)


def local_name(port: int) -> str:
    """The Unix socket of a server that listens at `port` of loopback."""
    return f"\0trek-ps-{port}"


def open_connection(address: Address, *, secret: str, timeout_s: float) -> socket.socket:
    """A connection to a server, after both sides have proved that they know the secret.

    OSError if it is not there, or not ready; `Stranger` if it has another secret, or ended at this moment.
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
    except (Stranger, OSError):
        connection.close()
        raise
    return connection
