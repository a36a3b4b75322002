"""WatchedGang: a Gang that watches members from one thread of its own, which also makes every callback.

Knows members, not how they are started: what it is given assigns ranks and starts members.
"""

from __future__ import annotations

import json
import os
import selectors
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from trek.engines.base import WORKER, Exit, Gang, LogLine, OutputLine, Placement
from trek.engines.hosts import AssignedRank
from trek.engines.member import Member
from trek.engines.member_folder import ANSWER
from trek.errors import InputError

_POLL_S = 0.05
"""How often files are polled: half the time in which a death must be noticed."""

_ASK_POLL_S = 0.01

_ROLE_GRACE_S = 5.0
"""How long members of other roles may take to end after the last worker."""

_KILL_MARGIN_S = 10.0
"""How long past the grace an agent may take before it is killed itself: a dead network, not a slow process."""


class Starter(Protocol):
    """Starts further members of a gang."""

    def assign(self, role: str, count: int) -> list[AssignedRank]:
        """Which host each member of a role runs on, were there `count` of them."""

    def start_member(self, assigned: AssignedRank) -> Member:
        """Start one member."""

    @property
    def secret(self) -> str:
        """What the members prove to each other."""

    def addresses(self, role: str) -> list[str]:
        """Where the members of a role other than the workers' listen."""

    def outlives_workers(self, role: str) -> bool:
        """Whether members of a role run on when the last worker has ended."""

    def resized(self, role: str, count: int) -> None:
        """A role is going to have `count` members."""


class WatchedGang(Gang):
    """A gang of `Member`s, wherever they run."""

    def __init__(
        self,
        members: Sequence[Member],
        *,
        starter: Starter,
        handle: str | None,
        on_line: Callable[[OutputLine], None] | None,
        on_exit: Callable[[Exit], None] | None,
    ) -> None:
        self._starter = starter
        self._handle = handle
        self._on_line = on_line
        self._on_exit = on_exit
        self._changed = threading.Condition()
        self._current = {(member.role, member.rank): member for member in members}
        self._open: list[Member] = list(members)
        for member in members:
            member.is_heard = on_line is not None
        self._unfinished = set(members)
        self._exits: list[Exit] = []
        self._failure: Exit | None = None
        self._callback_error: BaseException | None = None
        self._has_ended = False
        self._is_detached = False
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        self._thread = threading.Thread(target=self._watch, name="trek-gang", daemon=True)
        self._thread.start()

    @property
    def handle(self) -> str | None:
        """The `output_dir`; None for a gang that dies with its starter."""
        return self._handle

    @property
    def secret(self) -> str:
        """What its members prove to each other."""
        return self._starter.secret

    @property
    def num_workers(self) -> int:
        """How many workers the gang has now."""
        return len(self._members(WORKER))

    def addresses(self, role: str) -> list[str]:
        """Where the members of a role other than the workers' listen, as `host:port`, by rank."""
        return self._starter.addresses(role)

    @property
    def placements(self) -> list[Placement]:
        """Where the living members run, workers first; waits the moment that members take to start."""
        with self._changed:
            if not self._is_own_thread():
                self._changed.wait_for(lambda: self._has_ended or not any(one.is_starting for one in self._alive()))
            alive = sorted(self._alive(), key=lambda member: (member.role != WORKER, member.role, member.rank))
            return [
                Placement(member.role, member.rank, member.host, member.pid, member.devices, member.node)
                for member in alive
                if member.pid is not None
            ]

    @property
    def used_nodes(self) -> set[str]:
        """The `id` of every Node on which a living member runs or is being started; never waits."""
        with self._changed:
            return {member.node for member in self._alive() if member.is_placed}

    def _alive(self) -> list[Member]:
        return [member for member in self._current.values() if member in self._unfinished and member.code is None]

    def _members(self, role: str) -> list[Member]:
        return [member for member in self._current.values() if member.role == role]

    def _member(self, role: str, rank: int) -> Member:
        with self._changed:
            if (role, rank) not in self._current:
                raise InputError(f"the gang has no {role} with rank {rank}. It has {len(self._members(role))}.")
            return self._current[role, rank]

    def read_log(self, rank: int, position: int = 0, *, role: str = WORKER) -> list[LogLine]:
        """The next whole lines of a member's log file from the byte `position` on."""
        return self._member(role, rank).read_log(position)

    def read_file(
        self, name: str, *, rank: int, role: str = WORKER, start: int = 0, size: int | None = None
    ) -> bytes | None:
        """A file that a member left in its folder, once it has ended; None if there is none."""
        member = self._member(role, rank)
        return None if member.code is None else member.read_file(name, start=start, size=size)

    def ask(self, *, timeout_s: float) -> dict[int, dict[str, Any]]:
        """The answers of the living workers, by rank; members that did not answer in time are left out."""
        with self._changed:
            asked = [member for member in self._alive() if member.role == WORKER]
        for member in asked:
            member.ask()
        answers: dict[int, dict[str, Any]] = {}
        deadline = time.monotonic() + timeout_s
        while len(answers) < len(asked) and time.monotonic() < deadline:
            time.sleep(_ASK_POLL_S)
            found = {member.rank: member.read_file(ANSWER) for member in asked if member.rank not in answers}
            answers |= {rank: json.loads(document) for rank, document in found.items() if document}
        return answers

    def write_file(self, name: str, data: bytes) -> None:
        """Put a file into the folder of every living member."""
        with self._changed:
            alive = self._alive()
        for member in alive:
            member.write_file(name, data)

    def wait(self, timeout_s: float | None = None) -> list[Exit] | None:
        """Exits in the order they happened, once every member has ended; None when the time ran out first."""
        with self._changed:
            self._changed.wait_for(
                lambda: not self._unfinished or self._is_detached or self._callback_error is not None, timeout_s
            )
            self._raise_callback_error()
            return None if self._unfinished else list(self._exits)

    def wait_first_failure(self, timeout_s: float | None = None) -> Exit | None:
        """The first non-zero Exit that nobody asked for; None when all ended well or the time ran out."""
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self._failure is not None
                    or self._callback_error is not None
                    or self._is_detached
                    or not self._unfinished
                ),
                timeout_s,
            )
            self._raise_callback_error()
            return self._failure

    def _raise_callback_error(self) -> None:
        error, self._callback_error = self._callback_error, None
        if error is not None:
            raise error

    def stop(self, *, grace_s: float = 5.0) -> None:
        """SIGTERM, then after `grace_s` SIGKILL, to every member and what it started; returns when none is left.

        Called from a callback, it returns at once.
        """
        with self._changed:
            if not self._has_ended:
                self._ask_to_stop(self._open, grace_s=grace_s)
        if self._is_own_thread():
            return
        # Not Thread.join: a signal handler that raises in it would make the thread count as ended.
        with self._changed:
            self._changed.wait_for(lambda: self._has_ended, grace_s + _KILL_MARGIN_S)
            for member in self._open:
                member.kill()
            self._changed.wait_for(lambda: self._has_ended)

    def detach(self) -> None:
        """Stop watching, without stopping any member."""
        if self._handle is None:
            raise InputError("a gang without an output_dir dies with its starter and cannot be detached. Stop it.")
        with self._changed:
            self._is_detached = True
            self._wake()
            if not self._is_own_thread():
                self._changed.wait_for(lambda: self._has_ended)

    def resize(self, count: int, *, role: str = WORKER) -> None:
        """Start members with the next free ranks, or stop those with the highest ranks and wait for their end."""
        if count < 1:
            raise InputError(f"a gang has at least 1 {role}, got {count}. Stop the gang to end it.")
        assigned = self._starter.assign(role, count)
        with self._changed:
            if self._has_ended:
                raise InputError("the gang has ended and cannot be resized. Start a new one.")
            num_before = len(self._members(role))
            leaving = [self._current.pop((role, rank)) for rank in range(count, num_before)]
            self._ask_to_stop(leaving, grace_s=5.0)
            self._starter.resized(role, count)
            for one in assigned[num_before:]:
                self._add(self._starter.start_member(one))
            if not self._is_own_thread():
                self._changed.wait_for(lambda: self._unfinished.isdisjoint(leaving))

    def kill(self, rank: int, *, role: str = WORKER) -> None:
        """SIGKILL to one member and what it started, if it is alive; returns when it has ended."""
        member = self._member(role, rank)
        with self._changed:
            if member in self._unfinished:
                member.ask_to_stop(grace_s=0.0)
            self._changed.wait_for(lambda: member not in self._unfinished or self._has_ended)

    def restart(self, rank: int, *, role: str = WORKER) -> None:
        """Start a member anew in the place of one that has ended; one that is still alive is killed first."""
        with self._changed:
            self.kill(rank, role=role)
            if self._has_ended:
                raise InputError("the gang has ended, and none of its members can be restarted. Start a new one.")
            if self._failure is not None and (self._failure.role, self._failure.rank) == (role, rank):
                self._failure = None
            assigned = self._starter.assign(role, len(self._members(role)))
            self._add(self._starter.start_member(assigned[rank]))

    def _add(self, member: Member) -> None:
        member.is_heard = self._on_line is not None
        self._current[member.role, member.rank] = member
        self._unfinished.add(member)
        self._open.append(member)
        self._wake()

    def _wake(self) -> None:
        if not self._has_ended:
            os.write(self._wake_write, b"\0")

    def _ask_to_stop(self, members: Sequence[Member], *, grace_s: float) -> None:
        for member in members:
            member.ask_to_stop(grace_s=grace_s)

    def _is_own_thread(self) -> bool:
        return threading.current_thread() is self._thread

    def _watch(self) -> None:
        with selectors.DefaultSelector() as selector:
            while self._has_open():
                self._register(selector)
                is_polled = any(member.is_polled for member in self._open)
                ready = {key.fd for key, _ in selector.select(_POLL_S if is_polled else None)}
                if self._wake_read in ready:
                    os.read(self._wake_read, 4096)
                for member in list(self._open):
                    if member.is_polled or member.fds & ready:
                        self._look_after(member)

    def _has_open(self) -> bool:
        with self._changed:
            if self._is_detached:
                for member in self._open:
                    member.let_go()
            self._has_ended = not self._open or self._is_detached
            if self._has_ended:
                os.close(self._wake_read)
                os.close(self._wake_write)
                self._changed.notify_all()
            return not self._has_ended

    def _register(self, selector: selectors.BaseSelector) -> None:
        """Listen to what the members have open now; a number may have passed from one member to another."""
        wanted: dict[int, Member | None] = {fd: member for member in list(self._open) for fd in member.fds}
        wanted[self._wake_read] = None
        known = {fd: key.data for fd, key in selector.get_map().items()}
        for fd in [fd for fd in known if fd not in wanted or wanted[fd] is not known[fd]]:
            selector.unregister(fd)
        for fd in [fd for fd in wanted if fd not in known or wanted[fd] is not known[fd]]:
            selector.register(fd, selectors.EVENT_READ, wanted[fd])

    def _look_after(self, member: Member) -> None:
        had_pid = member.pid is not None
        for line in member.pump():
            self._call(self._on_line, line)
        if member.code is not None and member in self._unfinished:
            self._finish(member)
        with self._changed:
            if not had_pid and member.pid is not None:
                self._changed.notify_all()
            if member.is_gone and member not in self._unfinished:
                member.close()
                self._open.remove(member)

    def _finish(self, member: Member) -> None:
        exit_ = member.exit()
        self._call(self._on_exit, exit_)
        with self._changed:
            self._unfinished.discard(member)
            self._exits.append(exit_)
            if exit_.code != 0 and not member.is_unwanted and self._failure is None:
                self._failure = exit_
            if not any(other.role == WORKER for other in self._unfinished):
                ending = [other for other in self._unfinished if not self._starter.outlives_workers(other.role)]
                self._ask_to_stop(ending, grace_s=_ROLE_GRACE_S)
            self._changed.notify_all()

    def _call(self, callback: Callable[[OutputLine], None] | Callable[[Exit], None] | None, news: object) -> None:
        """An error of a callback is raised in the thread that waits; the members are watched all the same."""
        if callback is None:
            return
        try:
            callback(news)  # type: ignore[arg-type]
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
            with self._changed:
                self._callback_error = self._callback_error or error
                self._changed.notify_all()
