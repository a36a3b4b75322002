"""The client of a command, connected to the named master or else to the control plane of this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trek.client.client import Client


def connect(obj: dict[str, Any], *, engine: str | None = None) -> Client:
    """A client for the command with the context object `obj`; a control plane that it starts runs on `engine`."""
    from trek.client.client import Client

    return Client(obj["master"], engine=engine)
