"""What a starter and a warm parent agree on: files in the parent's folder, the size of messages, and whom to trust."""

from __future__ import annotations

import os
import socket
import struct

SOCKET, READY = "socket", "ready.json"
"""Where the parent listens, and what it has imported."""

MAX_REQUEST_BYTES = 65536
NUM_FDS = 4
"""A request brings the agent's stdin, stdout and stderr, and a pidfd of the starter; an answer a pidfd of the agent."""


def is_own_user(connection: socket.socket) -> bool:
    """Whether the process at the other end, or the one that listens there, is of this process's user."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return bool(struct.unpack("3i", credentials)[1] == os.getuid())
