"""ElasticGang: the processes of a job whose workers come and go, started and replaced by whoever started the job.

Beside the workers runs the job's coordinator, which decides who belongs to the job and how many are missing. Here those
are started, the ones that hang are killed, and a coordinator that dies is started again with what it had written down.
A worker that is killed is replaced; one that fails by itself, with an error of its program, ends the job. One that ends
without an error and has never been a member has nothing to do with the others, and is not replaced.
"""

from __future__ import annotations

import json
import secrets
import shutil
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from trek.elastic.coordinator_client import CoordinatorClient
from trek.elastic.coordinator_process import FOLDER, SETTINGS
from trek.elastic.joining import STARTED
from trek.elastic.membership import Change, MemberState
from trek.elastic.membership_settings import MembershipSettings
from trek.elastic.start_limits import StartLimits
from trek.engines import Engine, Exit, Gang, GangSpec, OutputLine
from trek.engines.base import WORKER, Role
from trek.errors import OutsideError
from trek.system.clock import Clock, SystemClock

COORDINATOR = "coordinator"
_PATIENCE_S = 2.0
"""How long to wait for a coordinator that is away: it may have to be started again, which is done here alone."""


_LATE_S = 30.0
"""How long workers that have not joined when the job is over may take to end by themselves."""
_ALL_KILLED = "all of its processes were killed at once, the coordinator too"


@dataclass(frozen=True)
class JobEnd:
    """How an elastic job ended: the Exit of the worker whose own error ended it, or a reason in words, or neither."""

    failed: Exit | None = None
    reason: str = ""
    num_apart: int = 0
    """Workers that ended without an error and had never joined the others; they were not replaced."""


class ElasticGang:
    """One job. `poll` does what is due, so call it a few times a second."""

    def __init__(
        self,
        engine: Engine,
        spec: GangSpec,
        settings: MembershipSettings,
        *,
        on_line: Callable[[OutputLine], None] | None = None,
        on_change: Callable[[Change], None] = lambda change: None,
        on_replace: Callable[[Gang, int], None] = lambda gang, rank: None,
        restart_other: Callable[[Gang, Exit], bool] = lambda gang, exit_: True,
        journal_dir: Path | None = None,
        attach: Callable[[GangSpec, Callable[[Exit], None]], Gang] | None = None,
        num_changes: int = 0,
        clock: Clock | None = None,
    ) -> None:
        """`on_replace` is called with the rank of a worker that has ended, before its files make way for another's.
        `restart_other` is called when a member of another role has failed; if it cannot be started again, the job ends.

        The coordinator's journal is in `journal_dir`, by default in the gang's `output_dir`. `attach` finds a gang that
        another process started with this spec, instead of starting one; the first `num_changes` are not told again.
        """
        self._settings = settings
        self._clock = clock or SystemClock()
        self._on_change = on_change
        self._on_replace = on_replace
        self._restart_other = restart_other
        self._others_ended: SimpleQueue[Exit] = SimpleQueue()
        self._num_changes = num_changes
        self.num_training = 0
        """How many workers trained together when `poll` last looked."""
        self._just_ended: deque[Exit] = deque()
        """Workers that ended since `poll` looked last."""
        self._ended: dict[int, Exit] = {}
        """By place: workers that may be replaced."""
        self._apart: set[int] = set()
        """The places of workers that ended without an error, and had never joined the others."""
        self._last_exit: Exit | None = None
        self._failed: Exit | None = None
        self._put_out: set[str] = set()
        self._pids: dict[str, int | None] = {}
        """The processes of members: a place in the gang may be another's by the time that a member is put out."""
        self._num_joined: Counter[int] = Counter()
        """How many members had been at each place when its present worker was started."""
        self._limits = StartLimits(settings)
        self._over_since_s: float | None = None
        """When the job was seen to be over."""
        self._own_folder = tempfile.mkdtemp(prefix="trek-coordinator-") if spec.output_dir is None else None
        folder = Path(self._own_folder) if self._own_folder else journal_dir or spec.output_dir
        whole = replace(
            spec,
            secret=spec.secret or secrets.token_hex(32),
            min_workers=settings.min_workers,
            env={**spec.env, SETTINGS: json.dumps(asdict(settings)), STARTED: str(time.time())},
            # All workers may be gone for a moment; what they need when they come back stays.
            roles={
                **{name: replace(role, outlives_workers=True) for name, role in spec.roles.items()},
                COORDINATOR: _coordinator(folder),
            },
        )
        if attach is None:
            self.gang: Gang = engine.start(whole, on_line=on_line, on_exit=self._note_exit)
        else:
            self.gang = attach(whole, self._note_exit)
        host, _, port = self.gang.addresses(COORDINATOR)[0].rpartition(":")
        self._client = CoordinatorClient(
            (host, int(port)), secret=self.gang.secret, clock=self._clock, patience_s=_PATIENCE_S
        )
        self._client.start()

    @property
    def num_alive(self) -> int:
        """How many workers have a process."""
        return len(self.gang.pids)

    def poll(self) -> JobEnd | None:
        """Start and kill what is to be, and tell of changes; how the job ended, once all its workers have."""
        self._restart_others()
        if self._failed is not None:
            return JobEnd(failed=self._failed)
        if self.gang.wait(0) is not None:  # no process is left that could go on, the coordinator included
            was_killed = self._last_exit is not None and self._last_exit.code < 0
            return JobEnd(failed=self._last_exit, reason=_ALL_KILLED) if was_killed else JobEnd()
        num_ended = len(self._just_ended)  # before the status, which tells whether they had joined
        status = self._status()
        if status is None:
            return None
        self.num_training = status["num_training"]
        for change in status["changes"]:
            self._num_changes += 1
            self._on_change(Change(**change))
        if status["failure"]:
            return JobEnd(failed=self._last_exit, reason=status["failure"])
        alive = self.gang.pids
        for name in status["members"]:
            self._pids.setdefault(name, alive.get(_rank_of(name)))
        self._kill_put_out(status["put_out"], alive)
        joined = _count_places([*status["members"], *status["former"]])
        self._sort_ended([self._just_ended.popleft() for _ in range(num_ended)], joined)
        if status["is_over"]:
            self._kill_late(alive, joined)
            return None if alive else self._complete_end()
        end = self._hopeless_end(status) or self._apart_end(status["members"], alive)
        if end is not None:
            return end
        self._start_missing(status, self.gang.pids)
        return None

    def scale(self, num_workers: int) -> int:
        """Change how many workers there are, at the next step boundary; the number that was chosen in the range."""
        return int(self._client.call("scale", num_workers=num_workers))

    def stop(self, *, grace_s: float) -> None:
        """Let all workers save and end; kill those that have not after `grace_s`."""
        self.gang.stop(grace_s=grace_s)

    def close(self) -> None:
        """End what is left, and forget it."""
        self._client.close()
        self.gang.stop(grace_s=2.0)
        if self._own_folder is not None:
            shutil.rmtree(self._own_folder, ignore_errors=True)

    # -- internals

    def _note_exit(self, exit_: Exit) -> None:
        """On the gang's thread. Signals come from outside, and a lost host too; other codes are the program's own."""
        if exit_.role != WORKER:
            if exit_.role != COORDINATOR and exit_.code:
                self._others_ended.put(exit_)
            return
        self._last_exit = exit_
        self._just_ended.append(exit_)
        if _is_own_error(exit_) and self._failed is None:
            self._failed = exit_

    def _restart_others(self) -> None:
        """Not on the gang's thread, which waits for nothing."""
        while not self._others_ended.empty():
            exit_ = self._others_ended.get()
            if self.gang.pids and not self._restart_other(self.gang, exit_) and self._failed is None:
                self._failed = exit_

    def _status(self) -> dict[str, Any] | None:
        """None while the coordinator cannot be reached; one that has died is started again."""
        roles = {place.role for place in self.gang.placements}
        if COORDINATOR not in roles and roles:
            self.gang.restart(0, role=COORDINATOR)
        try:
            answer: dict[str, Any] = self._client.call("status", num_changes=self._num_changes)
            return answer
        except OutsideError:
            return None

    def _sort_ended(self, exits: Iterable[Exit], joined: Counter[int]) -> None:
        """Whose place is free, and what their ends say about the job; `joined` counts the members of each place."""
        for exit_ in exits:
            has_joined = joined[exit_.rank] > self._num_joined[exit_.rank]
            self._num_joined[exit_.rank] = joined[exit_.rank]
            if exit_.code == 0 and not has_joined:
                self._apart.add(exit_.rank)
                continue
            self._ended[exit_.rank] = exit_
            self._limits.note_end(exit_.code, has_joined=has_joined, now_s=self._clock.monotonic_s())

    def _complete_end(self) -> JobEnd:
        """The training is over, and all workers have ended; the program is complete if one of them came to its end."""
        last = [*self._ended.values(), *self._just_ended]
        was_killed = last and all(exit_.code for exit_ in last) and not self._apart
        return JobEnd(failed=self._last_exit) if was_killed else JobEnd()

    def _hopeless_end(self, status: Mapping[str, Any]) -> JobEnd | None:
        """How the job ends if it cannot go on; losses of members are the coordinator's to count."""
        now_s = self._clock.monotonic_s()
        self._limits.follow(
            status["generation"], status["num_advances"], num_training=status["num_training"], now_s=now_s
        )
        if self._limits.is_crashing:
            return JobEnd(failed=self._last_exit)
        if reason := self._limits.futility(now_s):
            return JobEnd(failed=self._last_exit, reason=reason)
        return None

    def _apart_end(self, members: Mapping[str, str], alive: Mapping[int, int]) -> JobEnd | None:
        """How the job ends if workers are missing that are not replaced, since they have nothing to train."""
        if not self._apart:
            return None
        if not (members or alive or self._ended):
            return JobEnd(num_apart=len(self._apart))
        num_left, least = self._settings.max_workers - len(self._apart), self._settings.min_workers
        if num_left < least and members and MemberState.TRAINING not in members.values():
            reason = (
                f"{len(self._apart)} of its workers ended without having joined the others, which cannot train without "
                f"them: {least} are needed"
            )
            return JobEnd(failed=self._last_exit, reason=reason)
        return None

    def _kill_put_out(self, names: list[str], alive: dict[int, int]) -> None:
        """A worker that hangs does not end by itself; its place is taken when somebody is missing."""
        for name in names:
            if name not in self._put_out:
                self._put_out.add(name)
                pid = self._pids.get(name)
                if pid is not None and alive.get(_rank_of(name)) == pid:
                    self.gang.kill(_rank_of(name))

    def _kill_late(self, alive: Mapping[int, int], joined: Counter[int]) -> None:
        """The job is over: a worker that hangs while it starts has nothing left to do, and would hold up the end."""
        now_s = self._clock.monotonic_s()
        if self._over_since_s is None:
            self._over_since_s = now_s
        if now_s - self._over_since_s > _LATE_S:
            for rank in [rank for rank in alive if joined[rank] == self._num_joined[rank]]:
                self.gang.kill(rank)

    def _start_missing(self, status: dict[str, Any], alive: dict[int, int]) -> None:
        known = {_rank_of(name) for name in status["members"]}
        num_starting = len([rank for rank in alive if rank not in known])
        for _ in range(status["num_missing"] - num_starting):
            if not self._limits.may_start(self._clock.monotonic_s()):
                return
            free = self._replaceable()
            if free is not None:
                self._on_replace(self.gang, free)
                del self._ended[free]
                self.gang.restart(free)
            elif self.gang.num_workers < self._settings.max_workers and not self._apart:
                self.gang.resize(self.gang.num_workers + 1)

    def _replaceable(self) -> int | None:
        """The place of a worker that has ended. One that failed by itself keeps its place: its outcome is there, and it
        may have ended after `poll` looked whether anybody had failed."""
        alive = self.gang.pids
        places = (rank for rank, exit_ in sorted(self._ended.items()) if not _is_own_error(exit_))
        return next((rank for rank in places if rank not in alive), None)


def _count_places(names: Iterable[str]) -> Counter[int]:
    return Counter(map(_rank_of, names))


def _is_own_error(exit_: Exit) -> bool:
    return exit_.code > 0 and not exit_.is_unreached


def _coordinator(folder: Path | None) -> Role:
    env = {FOLDER: str(folder)} if folder is not None else {}
    command = [sys.executable, "-m", "trek.elastic.coordinator_process"]
    # Its journal is here, and workers know one address of it.
    return Role(command, 1, env=env, outlives_workers=True, is_beside_starter=True)


def _rank_of(name: str) -> int:
    """Of the process in its gang; see `joining`."""
    return int(name.partition("-")[0])
