"""HangWatch: finds a rank that holds all others up, and makes one report of it with the stacks of all ranks.

A rank that finishes no batch for `hang_s` seconds posts where it is in the job's store. The ranks that posted compare
what they find: a rank that posted nothing is stopped, one that waits in no collective is what the others wait for, and
ranks in different collectives wait for each other. The lowest of them reports. Works under every launcher, since the
store is the one that the process group was formed with.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any, Literal, cast

import torch.distributed as dist

from trek.engines.member_folder import MEMBER_DIR, MemberFolder
from trek.train.jobs.hang_report import collective_of, describe, is_unhurried, main_stack
from trek.train.jobs.rank_outcome import HANG, RankOutcome
from trek.world import World

OnHang = Literal["report", "restart", "stop"]

_POLL_S = 0.1
_POSTS_S = 4.0
"""How long ranks that hang wait for each other's posts."""
_STORE_S = 0.8
_LINGER_S = 1.0
_MAX_FRAMES = 8
_EXIT_CODE = 1


@dataclass(frozen=True)
class Sighting:
    """Where a rank was when it had finished no batch for too long."""

    rank: int
    num_beats: int
    """Batches that it had finished: posts of an earlier hang have fewer."""
    place: str
    collective: str
    """The collective it waits in; "" if none."""
    is_unhurried: bool
    """Whether it is at work that may take its time."""
    stack: str

    @classmethod
    def of_main_thread(cls, rank: int, *, num_beats: int, may_take_time: bool) -> Sighting:
        """The present one of this process, whose caller knows of work that may take its time."""
        stack = main_stack()
        lines = "".join(stack.format()[-_MAX_FRAMES:])
        return cls(rank, num_beats, describe(stack), collective_of(stack), may_take_time or is_unhurried(stack), lines)


def find_culprit(sightings: Mapping[int, Sighting], *, size: int) -> str:
    """In one sentence, what the ranks wait for; "" if it is work that may take its time. Pure."""
    if any(one.is_unhurried for one in sightings.values()):
        return ""
    if missing := sorted(set(range(size)) - sightings.keys()):
        return f"{_ranks(missing)} not answer: the process is stopped, or its machine cannot be reached"
    if idle := sorted(rank for rank, one in sightings.items() if not one.collective):
        if len(idle) == size:
            return "every rank is in its own code, and none waits for another"
        places = "; ".join(f"rank {rank} is {sightings[rank].place}" for rank in idle)
        return f"{places}; the other ranks wait for it" if len(idle) == 1 else f"{places}; the other ranks wait"
    by_collective: dict[str, list[int]] = {}
    for rank, one in sorted(sightings.items()):
        by_collective.setdefault(one.collective, []).append(rank)
    if len(by_collective) == 1:
        return f"all ranks wait in {next(iter(by_collective))}: the network between them may be broken"
    calls = " and ".join(f"{_names(ranks)} in {name}" for name, ranks in by_collective.items())
    return f"ranks wait in different collectives, {calls}: all ranks must make the same calls in the same order"


def _ranks(ranks: list[int]) -> str:
    return f"{_names(ranks)} {'does' if len(ranks) == 1 else 'do'}"


def _names(ranks: list[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"


class HangWatch:
    """A thread that looks whether batches are finished, and what to do if none is for `hang_s` seconds."""

    def __init__(
        self, world: World, *, hang_s: float, on_hang: OnHang = "report", end: Callable[[int], None] = os._exit
    ) -> None:
        """`end` ends this process with an exit code; see `on_hang` of TrainSettings."""
        self._world = world
        self._hang_s = hang_s
        self._on_hang = on_hang
        self._end_process = end
        self._num_beats = 0
        self._may_take_time = False
        self._due_s = time.monotonic() + hang_s
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="trek-hang-watch", daemon=True)
        self._thread.start()

    def beat(self) -> None:
        """A batch is done."""
        self._num_beats += 1
        self._due_s = time.monotonic() + self._hang_s

    @contextmanager
    def unhurried(self) -> Iterator[None]:
        """Within the block, this process is at work that may take its time, and no hang is reported."""
        self._may_take_time = True
        try:
            yield
        finally:
            self._may_take_time = False

    def close(self) -> None:
        """End the thread."""
        self._is_closed.set()
        self._thread.join()

    def _watch(self) -> None:
        reported_at = -1
        while not self._is_closed.wait(_POLL_S):
            if time.monotonic() < self._due_s or reported_at == self._num_beats:
                continue
            num_beats, (rank, size) = self._num_beats, self._place()
            own = Sighting.of_main_thread(rank, num_beats=num_beats, may_take_time=self._may_take_time)
            sightings = self._exchange(own, size=size)
            culprit = find_culprit(sightings, size=size) if sightings else ""
            if self._num_beats != num_beats or not culprit:  # a batch was finished meanwhile, or will be
                self._due_s = max(self._due_s, time.monotonic() + self._hang_s)
                continue
            reported_at = num_beats
            if rank == min(sightings):
                self._report(culprit, sightings)

    def _place(self) -> tuple[int, int]:
        """Rank and size of the present group, which an elastic run forms anew."""
        with suppress(RuntimeError, ValueError):  # it is being formed
            if dist.is_initialized():
                return dist.get_rank(), dist.get_world_size()
        return self._world.rank, 1

    def _exchange(self, own: Sighting, *, size: int) -> dict[int, Sighting]:
        """The sightings of all ranks that have finished as many batches and hang too; none if the job is ending."""
        found = {own.rank: own}
        thread = threading.Thread(target=_meet, args=(own, size, found), daemon=True)
        thread.start()
        thread.join(_POSTS_S + _STORE_S)  # the store may be in a process that is stopped
        return dict(found)

    def _report(self, culprit: str, sightings: Mapping[int, Sighting]) -> None:
        lines = [f"trek: no batch was finished for {self._hang_s:g} s: {culprit}."]
        for rank, one in sorted(sightings.items()):
            lines += [f"rank {rank} is {one.place}", one.stack.rstrip("\n")]
        print("\n".join(lines), file=sys.stderr, flush=True)
        if self._on_hang == "report":
            return
        message = f"no batch was finished for {self._hang_s:g} s: {culprit}"
        if MEMBER_DIR in os.environ:
            RankOutcome(min(sightings), "user", message, error=HANG).write(MemberFolder.from_env())
        time.sleep(_LINGER_S)  # other ranks may be reading the store, which ends with the process of rank 0
        self._end_process(_EXIT_CODE)


def _meet(own: Sighting, size: int, found: dict[int, Sighting]) -> None:
    """Post a sighting, and collect those of the other ranks in `found`."""
    if size == 1:
        return
    try:
        store = cast(Any, dist.distributed_c10d._get_default_store()).clone()  # the main thread may be using the other
        store.set(_key(own.rank), json.dumps(asdict(own)))
        until = time.monotonic() + _POSTS_S
        while len(found) < size and time.monotonic() < until:
            for rank in set(range(size)) - found.keys():
                if store.check([_key(rank)]):
                    other = Sighting(**json.loads(store.get(_key(rank))))
                    if abs(other.num_beats - own.num_beats) <= 1:
                        found[rank] = other
            time.sleep(_POLL_S)
    except (RuntimeError, OSError):  # the process that holds the store has ended, which ends the job
        found.clear()


def _key(rank: int) -> str:
    return f"trek-hang/{rank}"
