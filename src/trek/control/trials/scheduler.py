"""Which queued trials start now, and why the others wait. Pure: takes the queue and the slots, returns a plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

DEFAULT_PRIORITY = 50
BACKFILL_PATIENCE_S = 300.0
"""How long smaller trials may overtake one that waits for many slots."""


@dataclass(frozen=True)
class Request:
    """A trial that wants to run. Smaller priority numbers go first."""

    trial_id: int
    experiment_id: int
    slots: int
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


@dataclass
class SlotPlan:
    """Which trials to start now, and why the others wait."""

    start: list[int] = field(default_factory=list)
    waiting: dict[int, str] = field(default_factory=dict)


def plan(
    queue: Sequence[Request], running: Sequence[Occupied], *, total_slots: int, may_oversubscribe: bool = False
) -> SlotPlan:
    """Fill the free slots: by priority, then by fair share between experiments, then by age.

    With `may_oversubscribe`, a trial that needs more slots than there are runs when nothing else does: processor cores
    can be shared, GPUs cannot.
    """
    made = SlotPlan()
    used, trials = Counter[int](), Counter[int]()
    for occupied in running:
        used[occupied.experiment_id] += occupied.slots
        trials[occupied.experiment_id] += 1
    free = total_slots - sum(used.values())
    remaining = list(queue)
    is_blocked = False
    while remaining:
        request = min(remaining, key=lambda r: (r.priority, used[r.experiment_id] / r.weight, r.trial_id))
        remaining.remove(request)
        own_limit = _own_limit(request, used[request.experiment_id], trials[request.experiment_id])
        alone = may_oversubscribe and request.slots > total_slots and sum(used.values()) == 0
        if own_limit:
            made.waiting[request.trial_id] = own_limit
        elif (request.slots <= free and not is_blocked) or alone:
            made.start.append(request.trial_id)
            used[request.experiment_id] += request.slots
            trials[request.experiment_id] += 1
            free -= request.slots
        else:
            is_blocked = is_blocked or (request.waited_s > BACKFILL_PATIENCE_S and request.slots <= total_slots)
            made.waiting[request.trial_id] = _why(request, free, total_slots, place=len(made.waiting) + 1)
    return made


def _own_limit(request: Request, used: int, trials: int) -> str:
    if request.max_slots is not None and used + request.slots > request.max_slots:
        return f"its experiment may use {request.max_slots} slots and uses {used}"
    if request.max_trials and trials >= request.max_trials:
        return f"its experiment may run {request.max_trials} trials at once and runs {trials}"
    return ""


def _why(request: Request, free: int, total_slots: int, *, place: int) -> str:
    if request.slots > total_slots:
        return f"needs {_slots(request.slots)}, the cluster has {total_slots}"
    return f"needs {_slots(request.slots)}, {max(free, 0)} free, {_ordinal(place)} in queue"


def _slots(count: int) -> str:
    return f"{count} slot{'' if count == 1 else 's'}"


def _ordinal(place: int) -> str:
    suffix = "th" if 10 <= place % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(place % 10, "th")
    return f"{place}{suffix}"
