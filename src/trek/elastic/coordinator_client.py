"""A process's side of the coordinator: requests, what it is told without asking, and a heartbeat.

The connection is made anew whenever it is lost: the process introduces itself again and repeats what was not answered,
which the coordinator answers as it would have the first time. A member that was out of touch for longer than the
heartbeat allows may have been replaced, so `check_in` lets nothing more be computed before it was answered again.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from trek.elastic.actions import Seat
from trek.elastic.membership import NOTHING, Progress
from trek.errors import OutsideError, TrekError
from trek.system.clock import Clock
from trek.wire.connections import connect, shut
from trek.wire.frames import receive_message, send_message
from trek.world import World

_CONNECT_S = 2.0
_LOOK_S = 0.5
_BEATS = 4
"""Heartbeats that are sent within the time after which a member counts as lost."""


class Dismissed(Exception):
    """The job does not need this process any more, or does not know it: it is to end."""


@dataclass(frozen=True)
class Formation:
    """A generation, as one of its members sees it."""

    world: World
    has_source: bool
    """Whether the others take the state of rank 0; else all start from the last checkpoint, or the beginning."""
    is_open: bool
    """Whether all members come from an open place; see `membership`."""
    members: frozenset[str] = frozenset()
    """The names of all."""


class CoordinatorClient:
    """Requests to a coordinator, from any thread. One connection, made anew when it is lost."""

    def __init__(self, address: tuple[str, int], *, secret: str, clock: Clock, patience_s: float = 120.0) -> None:
        self._address = address
        self._secret = secret
        self._clock = clock
        self._patience_s = patience_s
        self._changed = threading.Condition()
        self._sending = threading.Lock()
        self._connection: socket.socket | None = None
        self._waiting: dict[int, dict[str, Any]] = {}
        self._answers: dict[int, dict[str, Any]] = {}
        self._next_id = 1
        self._is_closed = False
        self._gone_since_s: float | None = clock.monotonic_s()
        self.heard_s = clock.monotonic_s()
        """When the coordinator last said anything."""
        self._thread = threading.Thread(target=self._listen, name="trek-coordinator-client", daemon=True)

    def start(self) -> None:
        """Connect, in the background."""
        self._thread.start()

    def close(self) -> None:
        """Disconnect. A member that does so without having finished is lost."""
        with self._changed:
            self._is_closed = True
            if self._connection is not None:
                shut(self._connection)
            self._changed.notify_all()
        self._thread.join()

    def call(self, do: str, **arguments: Any) -> Any:
        """Ask for something, and wait for the answer, over lost connections too.

        OutsideError when the coordinator cannot be reached for `patience_s`.
        """
        with self._changed:
            number, self._next_id = self._next_id, self._next_id + 1
            self._waiting[number] = request = {"id": number, "do": do, "with": arguments}
        self._send(request)
        with self._changed:
            try:
                while number not in self._answers:
                    self._raise_if_over()
                    self._changed.wait(_LOOK_S)
            finally:  # an answer that comes later is dropped
                self._waiting.pop(number, None)
            answer = self._answers.pop(number)
        if "error" in answer:
            raise TrekError(answer["error"])
        return answer["answer"]

    def _raise_if_over(self) -> None:
        away_s = 0.0 if self._gone_since_s is None else self._clock.monotonic_s() - self._gone_since_s
        if self._is_closed or away_s > self._patience_s:
            host, port = self._address
            raise OutsideError(f"the job's coordinator at {host}:{port} did not answer for {away_s:.0f} s.")

    # -- the connection ------------------------------------------------------------------------------------------

    def _introduction(self) -> list[dict[str, Any]]:
        """What is said first on every connection."""
        return []

    def _told(self, message: dict[str, Any]) -> None:
        """Take something that the coordinator said without being asked."""

    def _listen(self) -> None:
        while not self._is_closed:
            connection = self._connected()
            if connection is None:
                continue
            try:
                while True:
                    self._take(receive_message(connection))
            except (OSError, EOFError, ValueError):
                self._forget(connection)

    def _connected(self) -> socket.socket | None:
        try:
            connection = connect(*self._address, secret=self._secret, timeout_s=_CONNECT_S)
        except (OSError, OutsideError):
            return None
        with self._sending:  # nothing is sent before the introduction
            with self._changed:
                if self._is_closed:
                    connection.close()
                    return None
                repeated = [*self._introduction(), *self._waiting.values()]
                self._connection = connection
                self._gone_since_s = None
            with suppress(OSError):  # noticed by whoever listens to it
                for request in repeated:
                    send_message(connection, request)
        return connection

    def _forget(self, connection: socket.socket) -> None:
        with self._changed:
            self._connection = None
            self._gone_since_s = self._clock.monotonic_s()
            self._changed.notify_all()
        connection.close()

    def _take(self, message: dict[str, Any]) -> None:
        with self._changed:
            self.heard_s = self._clock.monotonic_s()
            if "id" not in message:
                self._told(message)
            elif self._waiting.pop(message["id"], None) is not None:
                self._answers[message["id"]] = message
            self._changed.notify_all()

    def _send(self, message: dict[str, Any]) -> None:
        """Send now; what waits for an answer is repeated on the next connection if this one is lost."""
        with self._sending, suppress(OSError):
            if self._connection is not None:
                send_message(self._connection, message)


class MemberClient(CoordinatorClient):
    """A worker's connection: it belongs to the job under its name until it finishes, leaves or is lost."""

    def __init__(
        self,
        address: tuple[str, int],
        *,
        secret: str,
        clock: Clock,
        name: str,
        host: str,
        heartbeat_s: float = 20.0,
        on_abandon: Callable[[], None] = lambda: None,
        on_stop: Callable[[], None] = lambda: None,
        base: World | None = None,
    ) -> None:
        super().__init__(address, secret=secret, clock=clock)
        self.name = name
        self._host = host
        self._heartbeat_s = heartbeat_s
        self.on_abandon = on_abandon
        """Called from another thread when a peer of the generation is lost; again and again until this worker
        arrives."""
        self.on_stop = on_stop
        """Called from another thread when the whole job is to stop."""
        self.waiting_s: Callable[[], float] = lambda: 0.0
        """How long this worker has been waiting for its peers; the heartbeat tells the coordinator."""
        self._base = base or World()
        self.progress: Progress = NOTHING
        """How far this worker is; the heartbeat tells the coordinator."""
        self._generation = 0
        self._asking: dict[str, Any] | None = None
        """What is repeated on every connection until it has led to a generation."""
        self._formed: dict[str, Any] | None = None
        self._dismissal: str | None = None
        self.wants_regroup = False
        """Whether the generation is to meet at the next step boundary."""
        self.is_abandoned = False
        """Whether somebody of the generation is lost, so that its collectives cannot complete."""
        self._beating = threading.Thread(target=self._beat, name="trek-heartbeat", daemon=True)

    def start(self) -> None:
        """Connect and begin to beat, in the background."""
        super().start()
        self._beating.start()

    def close(self) -> None:
        """Disconnect and stop beating."""
        super().close()
        self._beating.join()

    def ready(self) -> Formation:
        """Say that this worker can train, and wait until it belongs to a generation."""
        return self._formation_after("ready")

    def arrive(self, progress: Progress, *, is_open: bool = True) -> Formation:
        """Leave the present generation with a state of this progress, and wait for the next one."""
        self.progress = progress
        return self._formation_after("arrive", generation=self._generation, progress=progress, is_open=is_open)

    def leave(self, reason: str) -> None:
        """Ask to be left out from the next step boundary on."""
        self.call("leave", reason=reason)

    def finish(self) -> None:
        """Say that the training is complete; Dismissed if this process's result does not count."""
        self.call("finish", generation=self._generation)
        if self._dismissal is not None:
            raise Dismissed(self._dismissal)

    def check_in(self) -> None:
        """Return at once while in touch; else wait until the coordinator has answered. Dismissed if it refuses."""
        if self._clock.monotonic_s() - self.heard_s > self._heartbeat_s:
            self.call("beat", progress=self.progress)
        if self._dismissal is not None:
            raise Dismissed(self._dismissal)

    def _formation_after(self, do: str, **arguments: Any) -> Formation:
        request = {"id": 0, "do": do, "with": arguments}
        with self._changed:
            self._formed, self._asking = None, request
        self._send(request)
        with self._changed:
            while not self._is_placed():
                self._raise_if_over()
                self._changed.wait(_LOOK_S)
            self._asking = None
        return self._place()

    def _is_placed(self) -> bool:
        if self._dismissal is not None:
            raise Dismissed(self._dismissal)
        return self._formed is not None

    def _place(self) -> Formation:
        formed = self._formed
        assert formed is not None
        seats = [Seat(**seat) for seat in formed["seats"]]
        own = next(seat for seat in seats if seat.member == self.name)
        world = replace(
            self._base,
            rank=own.rank,
            size=len(seats),
            local_rank=own.local_rank,
            local_size=own.local_size,
            master_addr=self._address[0],
            master_port=formed["store_port"],
            secret=self._secret,
            generation=formed["generation"],
        )
        names = frozenset(seat.member for seat in seats)
        return Formation(world, has_source=formed["source"] is not None, is_open=formed["is_open"], members=names)

    def _introduction(self) -> list[dict[str, Any]]:
        join = {"id": 0, "do": "join", "with": {"name": self.name, "host": self._host}}
        return [join, self._asking] if self._asking is not None else [join]

    def _told(self, message: dict[str, Any]) -> None:
        word = message["push"]
        if word == "stop":
            self.on_stop()
        elif word == "dismiss":
            self._dismissal = message["reason"]
            self._abandon()
        elif word == "form" and message["generation"] > self._generation:
            self._generation = message["generation"]
            self.wants_regroup = self.is_abandoned = False
            self._formed = message
        elif message["generation"] == self._generation and word == "regroup":
            self.wants_regroup = True
        elif message["generation"] == self._generation and word == "abandon":
            self._abandon()

    def _abandon(self) -> None:
        self.is_abandoned = True
        self.on_abandon()

    def _beat(self) -> None:
        while not self._is_closed:
            self._send({"id": 0, "do": "beat", "with": {"progress": self.progress, "waiting_s": self.waiting_s()}})
            with self._changed:
                self._changed.wait_for(lambda: self._is_closed, self._heartbeat_s / _BEATS)
