"""A port that the members of a gang meet at, on the machine where this is called. For every engine."""

from __future__ import annotations

import secrets
import socket

from trek.errors import OutsideError


def find_free_port() -> int:
    """A free port below the ephemeral range of the system.

    Ports handed out for outgoing connections could be taken between now and the first rank's listening.
    """
    for _ in range(50):
        port = 20000 + secrets.randbelow(12000)  # not from `random`: the user may have seeded it
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port
    raise OutsideError("no free port was found between 20000 and 32000. Close programs that listen there.")
