"""Which queued trials start now, with how many slots, and why the others wait. Pure: takes the queue and the slots.

Elastic trials have a range of slots. Everybody that may run gets its minimum first; what is left is shared out among
the elastic ones. How it is shared depends on which trials there are, not on what they hold at the moment, so that slots
do not wander while nothing changes. Slots that an elastic trial gives back go to others once its workers have left.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

DEFAULT_PRIORITY = 50
BACKFILL_PATIENCE_S = 300.0
"""How long smaller trials may overtake one that waits for many slots."""


@dataclass(frozen=True)
class Request:
    """A trial that wants to run. Smaller priority numbers go first."""

    trial_id: int
    experiment_id: int
    slots: int
    """What it needs to start."""
    most: int | None = None
    """How many it takes while they are free, if it is elastic."""
    priority: int = DEFAULT_PRIORITY
    weight: float = 1.0
    max_slots: int | None = None
    max_trials: int = 0
    """How many trials of its experiment may run at once; 0 means no limit."""
    waited_s: float = 0.0


@dataclass(frozen=True)
class Occupied:
    """A running trial."""

    trial_id: int
    experiment_id: int
    slots: int
    """Those it holds, including those that its workers have not left yet."""
    least: int | None = None
    """What an elastic trial may be reduced to; None for others."""
    most: int = 0
    """What an elastic trial may have."""
    priority: int = DEFAULT_PRIORITY
    weight: float = 1.0
    max_slots: int | None = None

    @property
    def base(self) -> int:
        """What it cannot do without."""
        return self.slots if self.least is None else self.least


@dataclass
class SlotPlan:
    """Which trials to start now, and why the others wait."""

    start: list[int] = field(default_factory=list)
    sizes: dict[int, int] = field(default_factory=dict)
    """How many slots each trial that starts gets, and how many each elastic trial is to have from now on."""
    waiting: dict[int, str] = field(default_factory=dict)
    without_room: list[int] = field(default_factory=list)
    """Those of them that wait for slots, and not because of limits of their experiment."""


Elastic: TypeAlias = Request | Occupied
"""A trial that may get more than its minimum."""


def plan(
    queue: Sequence[Request],
    running: Sequence[Occupied],
    *,
    total_slots: int,
    may_oversubscribe: bool = False,
    can_grow: bool = False,
) -> SlotPlan:
    """Fill the slots: by priority, then by fair share between experiments, then by age.

    With `may_oversubscribe`, a trial that needs more slots than there are runs when nothing else does: processor cores
    can be shared, GPUs cannot. With `can_grow`, it waits for more slots.
    """
    made = SlotPlan()
    used, trials = Counter[int](), Counter[int]()
    for occupied in running:
        used[occupied.experiment_id] += occupied.base
        trials[occupied.experiment_id] += 1
    free = total_slots - sum(occupied.slots for occupied in running)
    may_oversubscribe = may_oversubscribe and not can_grow
    admitted = _admit(queue, made, used, trials, free=free, total=total_slots, may_oversubscribe=may_oversubscribe)
    if can_grow:
        _note_growth(made, queue, total=total_slots)
    room = total_slots - sum(used.values())
    elastic: list[Elastic] = [*(one for one in running if one.least is not None), *admitted]
    wanted = _share(elastic, used, room=room)
    _apply(made, wanted, queue, running, free=free)
    return made


def _admit(
    queue: Sequence[Request],
    made: SlotPlan,
    used: Counter[int],
    trials: Counter[int],
    *,
    free: int,
    total: int,
    may_oversubscribe: bool,
) -> list[Request]:
    """Those who get their minimum: at once where it is free, or as soon as elastic trials have given it back."""
    admitted: list[Request] = []
    is_blocked, taken = False, sum(used.values())
    for request in _in_turn(queue, used):
        own_limit = _own_limit(request, used[request.experiment_id], trials[request.experiment_id])
        room = total - taken
        alone = may_oversubscribe and request.slots > total and taken == 0
        if own_limit:
            made.waiting[request.trial_id] = own_limit
        elif (request.slots <= room and not is_blocked) or alone:
            used[request.experiment_id] += request.slots
            trials[request.experiment_id] += 1
            taken += request.slots
            admitted.append(request)
            if request.slots <= free or alone:
                made.start.append(request.trial_id)
                free -= request.slots
            else:
                made.waiting[request.trial_id] = _why_soon(request, free)
        else:
            is_blocked = is_blocked or (request.waited_s > BACKFILL_PATIENCE_S and request.slots <= total)
            made.waiting[request.trial_id] = _why(request, room, total, place=len(made.waiting) + 1)
            made.without_room.append(request.trial_id)
    return admitted


def _note_growth(made: SlotPlan, queue: Sequence[Request], *, total: int) -> None:
    """Say of those that need more slots than there are what they wait for."""
    lacking = set(made.without_room)
    too_large = [one.trial_id for one in queue if one.trial_id in lacking and one.slots > total]
    made.waiting |= {trial_id: f"{made.waiting[trial_id]}, waits for more nodes" for trial_id in too_large}


def _in_turn(queue: Sequence[Request], used: Counter[int]) -> Iterator[Request]:
    """The requests by priority, fair share and age. The caller adds to `used` meanwhile, which moves others forward.

    Only the oldest request of each experiment can be next, and a share only grows, so an entry of the heap that is out
    of date is put back with its present turn: the time is about linear in the queue.
    """
    lines: dict[tuple[int, int, float], list[Request]] = {}
    for request in sorted(queue, key=lambda one: one.trial_id, reverse=True):
        lines.setdefault((request.priority, request.experiment_id, request.weight), []).append(request)

    def turn(line: tuple[int, int, float]) -> tuple[int, float, int, tuple[int, int, float]]:
        priority, experiment_id, weight = line
        return priority, used[experiment_id] / weight, lines[line][-1].trial_id, line

    heap = [turn(line) for line in lines]
    heapq.heapify(heap)
    while heap:
        entry = heapq.heappop(heap)
        line = entry[-1]
        if entry == turn(line):
            yield lines[line].pop()
        if lines[line]:
            heapq.heappush(heap, turn(line))


def _share(elastic: Sequence[Elastic], used: Counter[int], *, room: int) -> dict[int, int]:
    """How many slots each elastic trial is to have: one after another to whoever has least for its weight."""
    sizes = {one.trial_id: _base(one) for one in elastic}
    by_id = {one.trial_id: one for one in elastic}
    heap = [_turn(one, used, sizes) for one in elastic]
    heapq.heapify(heap)
    while room > 0 and heap:
        turn = heapq.heappop(heap)
        one = by_id[turn[-1]]
        if sizes[one.trial_id] >= _most(one) or not _is_within_limit(one, used):
            continue
        if turn == _turn(one, used, sizes):
            sizes[one.trial_id] += 1
            used[one.experiment_id] += 1
            room -= 1
        heapq.heappush(heap, _turn(one, used, sizes))  # its turn only moves back, as slots are given out
    return sizes


def _turn(one: Elastic, used: Counter[int], sizes: dict[int, int]) -> tuple[int, float, int, int]:
    return one.priority, used[one.experiment_id] / one.weight, sizes[one.trial_id], one.trial_id


def _apply(
    made: SlotPlan, wanted: dict[int, int], queue: Sequence[Request], running: Sequence[Occupied], *, free: int
) -> None:
    """Who shrinks does so now; who grows gets what nobody holds any more."""
    held = {one.trial_id: one.slots for one in running if one.least is not None}
    starts = set(made.start)
    starting = {one.trial_id: one.slots for one in queue if one.trial_id in starts}
    free -= sum(starting.values())
    for trial_id, now in (starting | held).items():
        size = wanted[trial_id]
        growth = max(min(size - now, free), 0)
        free -= growth
        made.sizes[trial_id] = min(size, now + growth)


def _base(one: Elastic) -> int:
    return one.slots if isinstance(one, Request) else one.base


def _most(one: Elastic) -> int:
    return one.most or one.slots if isinstance(one, Request) else one.most


def _is_within_limit(one: Elastic, used: Counter[int]) -> bool:
    return one.max_slots is None or used[one.experiment_id] < one.max_slots


def _own_limit(request: Request, used: int, trials: int) -> str:
    if request.max_slots is not None and used + request.slots > request.max_slots:
        return f"its experiment may use {request.max_slots} slots and uses {used}"
    if request.max_trials and trials >= request.max_trials:
        return f"its experiment may run {request.max_trials} trials at once and runs {trials}"
    return ""


def _why_soon(request: Request, free: int) -> str:
    return f"needs {_slots(request.slots)}, {max(free, 0)} free, waits for elastic trials to give theirs back"


def _why(request: Request, free: int, total_slots: int, *, place: int) -> str:
    if request.slots > total_slots:
        return f"needs {_slots(request.slots)}, the cluster has {total_slots}"
    return f"needs {_slots(request.slots)}, {max(free, 0)} free, {_ordinal(place)} in queue"


def _slots(count: int) -> str:
    return f"{count} slot{'' if count == 1 else 's'}"


def _ordinal(place: int) -> str:
    suffix = "th" if 10 <= place % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(place % 10, "th")
    return f"{place}{suffix}"
