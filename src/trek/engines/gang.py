"""LocalGang: watches members from one thread of its own, which also makes every callback.

Knows members, not how they are started: a function it is given makes the member of a place.
"""

from __future__ import annotations

import os
import selectors
import threading
from collections.abc import Callable, Sequence

from trek.engines.base import Exit, Gang, OutputLine
from trek.engines.hosts import Placement
from trek.engines.member import Member
from trek.errors import InputError

_POLL_S = 0.05
"""How often files are looked at; half of what a death may take to be noticed."""

_KILL_MARGIN_S = 10.0
"""How long past the grace an agent may take before it is killed itself: a dead network, not a slow process."""


class LocalGang(Gang):
    """A gang whose members are reached through agents."""

    def __init__(
        self,
        members: Sequence[Member],
        *,
        start_member: Callable[[Placement], Member],
        assign: Callable[[int], list[Placement]],
        on_line: Callable[[OutputLine], None] | None,
        on_exit: Callable[[Exit], None] | None,
    ) -> None:
        self._start_member = start_member
        self._assign = assign
        self._on_line = on_line
        self._on_exit = on_exit
        self._changed = threading.Condition()
        self._current = {member.rank: member for member in members}
        self._open: list[Member] = list(members)
        self._unfinished = set(members)
        self._exits: list[Exit] = []
        self._failure: Exit | None = None
        self._callback_error: BaseException | None = None
        self._has_ended = False
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        self._thread = threading.Thread(target=self._watch, name="trek-gang", daemon=True)
        self._thread.start()

    @property
    def num_workers(self) -> int:
        """How many members the gang has now."""
        return len(self._current)

    @property
    def pids(self) -> dict[int, int]:
        """Process id by rank, of the members that are alive; waits the moment that members take to start."""
        with self._changed:
            if not self._is_own_thread():
                self._changed.wait_for(lambda: all(m.pid is not None or m.code is not None for m in self._alive()))
            return {member.rank: member.pid for member in self._alive() if member.pid is not None}

    def _alive(self) -> list[Member]:
        return [member for member in self._current.values() if member in self._unfinished]

    def wait(self, timeout_s: float | None = None) -> list[Exit] | None:
        """Exits in the order they happened, once every member has ended; None when the time ran out first."""
        with self._changed:
            self._changed.wait_for(lambda: not self._unfinished or self._callback_error is not None, timeout_s)
            self._raise_callback_error()
            return None if self._unfinished else list(self._exits)

    def wait_first_failure(self, timeout_s: float | None = None) -> Exit | None:
        """The first non-zero Exit that nobody asked for; None when all ended well or the time ran out."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._failure is not None or self._callback_error is not None or not self._unfinished,
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
            self._ask_to_stop(self._open, grace_s=grace_s)
        if self._is_own_thread():
            return
        # Not Thread.join: a signal handler that raises in it would make the thread count as ended.
        with self._changed:
            self._changed.wait_for(lambda: self._has_ended, grace_s + _KILL_MARGIN_S)
            for member in self._open:
                member.kill()
            self._changed.wait_for(lambda: self._has_ended)

    def resize(self, num_workers: int) -> None:
        """Start members with the next free ranks, or stop those with the highest ranks and wait for their end."""
        if num_workers < 1:
            raise InputError(f"a gang has at least 1 worker, got {num_workers}. Stop the gang to end it.")
        places = self._assign(num_workers)
        with self._changed:
            if self._has_ended:
                raise InputError("the gang has ended and cannot be resized. Start a new one.")
            leaving = [self._current.pop(rank) for rank in sorted(self._current) if rank >= num_workers]
            self._ask_to_stop(leaving, grace_s=5.0)
            for place in places[len(self._current) :]:
                self._add(self._start_member(place))
            if not self._is_own_thread():
                self._changed.wait_for(lambda: self._unfinished.isdisjoint(leaving))

    def _add(self, member: Member) -> None:
        self._current[member.rank] = member
        self._unfinished.add(member)
        self._open.append(member)
        os.write(self._wake_write, b"\0")

    def _ask_to_stop(self, members: Sequence[Member], *, grace_s: float) -> None:
        for member in members:
            member.ask_to_stop(grace_s=grace_s)

    def _is_own_thread(self) -> bool:
        return threading.current_thread() is self._thread

    def _watch(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._wake_read, selectors.EVENT_READ)
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
            self._has_ended = not self._open
            if self._has_ended:
                os.close(self._wake_read)
                os.close(self._wake_write)
                self._changed.notify_all()
            return not self._has_ended

    def _register(self, selector: selectors.BaseSelector) -> None:
        wanted = {self._wake_read}.union(*(member.fds for member in list(self._open)))
        registered = set(selector.get_map())
        for fd in registered - wanted:
            selector.unregister(fd)
        for fd in wanted - registered:
            selector.register(fd, selectors.EVENT_READ)

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
            self._changed.notify_all()

    def _call(self, callback: Callable[[OutputLine], None] | Callable[[Exit], None] | None, news: object) -> None:
        """A callback that raises is heard of by who waits; the members are looked after all the same."""
        if callback is None:
            return
        try:
            callback(news)  # type: ignore[arg-type]
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
            with self._changed:
                self._callback_error = self._callback_error or error
                self._changed.notify_all()
