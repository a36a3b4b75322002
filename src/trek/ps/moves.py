"""Checkpoints of all servers at one point, and by them the move of a model to other servers while it is used.

A move: the old servers take no pushes, write a checkpoint, and go on holding pushes back while the new servers read it.
Then the old ones say where the parameters are, to whoever waits and to whoever comes, and clients follow. A push is in
the checkpoint on all servers or on none, and its number is, too: so whoever repeats it has it applied once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar
from uuid import uuid4

from trek.errors import TrekError
from trek.ps.protocol import messages as pb
from trek.ps.server_group import ServerGroup
from trek.ps.server_link import Moved

HOLD_MS = 60_000
MOVE_MS = 600_000
"""For so long, servers hold pushes back at most: whoever saves or moves them may have died."""


class Follower(Protocol):
    """Who can go on with other servers."""

    def follow(self, addresses: Sequence[str]) -> None:
        """Go on with these."""


Self = TypeVar("Self", bound=Follower)
Given = ParamSpec("Given")
Result = TypeVar("Result")


def following_moves(method: Callable[Concatenate[Self, Given], Result]) -> Callable[Concatenate[Self, Given], Result]:
    """A method that begins again with the new servers if the parameters have moved meanwhile."""

    @wraps(method)
    def call(self: Self, /, *args: Given.args, **named: Given.kwargs) -> Result:
        while True:
            try:
                return method(self, *args, **named)
            except Moved as moved:
                self.follow(moved.addresses)

    return call


def save_all(servers: ServerGroup, folder: Path, *, hold_ms: int = HOLD_MS, stays_held: bool = False) -> None:
    """Have every server write to `folder`, all at the same point.

    If one cannot, all take pushes again, and an earlier checkpoint in the folder stays as it was.
    """
    with _released_on_failure(servers):
        _save_all(servers, folder, hold_ms=hold_ms, stays_held=stays_held)


def _save_all(servers: ServerGroup, folder: Path, *, hold_ms: int, stays_held: bool) -> None:
    held = servers.ask_all(pb.Envelope(hold=pb.HoldRequest(limit_ms=hold_ms)))
    until: dict[str, int] = {}
    for answer, _ in held:
        for source, last in answer.made.sequences.items():
            until[source] = max(last, until.get(source, 0))
    cut: dict[str, Any] = {"path": str(folder.absolute()), "cut": uuid4().hex, "num_servers": len(servers)}
    writing = {"until": pb.Progress(sequences=until), "wait_ms": hold_ms, "stay_held": stays_held}
    try:
        _ask_to_save(servers, **cut, **writing)
    except BaseException:
        with suppress(TrekError):  # the failure above counts
            _ask_to_save(servers, **cut, discards=True)
        raise
    _ask_to_save(servers, **cut, publishes=True)


def _ask_to_save(servers: ServerGroup, **request: Any) -> None:
    requests = [pb.CheckpointRequest(server=server, **request) for server in range(len(servers))]
    servers.ask([(pb.Envelope(checkpoint=one), None) for one in requests])


def restore_all(servers: ServerGroup, folder: Path) -> None:
    """Give the servers the state of a checkpoint, which any number of servers may have written."""
    path, count = str(folder.absolute()), len(servers)
    requests = [pb.RestoreRequest(path=path, server=server, num_servers=count) for server in range(count)]
    servers.ask([(pb.Envelope(restore=request), None) for request in requests])


def move_all(servers: ServerGroup, target: ServerGroup, *, folder: Path) -> None:
    """Have the parameters of `servers` on `target` instead."""
    save_all(servers, folder, hold_ms=MOVE_MS, stays_held=True)
    first = pb.MoveRequest(addresses=target.addresses, must_be_held=True)
    with _released_on_failure(servers):
        restore_all(target, folder)
        # Every push goes to all servers: once the first of them takes none any more, none can be complete.
        servers.ask_some({0: (pb.Envelope(move=first), None)})
    servers.ask_all(pb.Envelope(move=pb.MoveRequest(addresses=target.addresses)))


@contextmanager
def _released_on_failure(servers: ServerGroup) -> Iterator[None]:
    """Have servers that are held take pushes again if the block fails."""
    try:
        yield
    except BaseException:
        with suppress(TrekError):  # the failure of the block counts
            servers.ask_all(pb.Envelope(hold=pb.HoldRequest(limit_ms=0)))
        raise
