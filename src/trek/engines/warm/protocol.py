"""What a starter and a warm parent agree on: files in the parent's folder, and the size of their messages."""

from __future__ import annotations

SOCKET, READY, REFUSED = "socket", "ready.json", "refused"
"""Where the parent listens, what it has imported, and why it will not serve."""

MAX_REQUEST_BYTES = 65536
NUM_FDS = 4
"""A request brings the agent's stdin, stdout and stderr, and a pidfd of the starter; an answer a pidfd of the agent."""
