"""The client of a command: of the master that was named, else of this machine's own control plane."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trek.client.client import Client


def connect(obj: dict[str, Any]) -> Client:
    """A client for the command whose context carries `obj`."""
    from trek.client.client import Client

    return Client(obj["master"])
