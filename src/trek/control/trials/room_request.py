"""RoomRequest: asks an engine whose cluster can grow for what the queue needs, and withdraws it when nothing waits."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from trek.control.trials.scheduler import Occupied, Request, SlotPlan
from trek.engines import Engine
from trek.errors import TrekError
from trek.system.clock import Clock

MAX_WORKERS = 10_000
"""More is never asked for at once: the cluster has a limit of its own far below."""
REPEAT_S = 5.0
"""How often a request that stands is made again: an engine may have been told meanwhile that it is too large. A cluster
has only one, too, which another control plane may replace and a restarted head may have forgotten."""
HOLD_S = 15.0
"""How long a request stands after the last trial that waited has started: a node that was idle while others were added
would be ended before the trial is on it."""
_LOG = logging.getLogger(__name__)


def wanted_workers(queue: Sequence[Request], running: Sequence[Occupied], plan: SlotPlan) -> int:
    """How many workers there must be room for so that nobody waits for slots; 0 if nobody does."""
    lacking = set(plan.without_room)
    waiting = sum(request.slots for request in queue if request.trial_id in lacking)
    starting = sum(plan.sizes[trial_id] for trial_id in plan.start)
    return min(waiting + starting + sum(one.slots for one in running), MAX_WORKERS) if waiting else 0


class RoomRequest:
    """See the module. Used by the supervisor's thread only."""

    def __init__(self, engine: Engine, *, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock
        self._asked: int | None = None  # a control plane that was killed may have left a request
        self._asked_s = self._needed_s = 0.0

    def ask(self, num_workers: int, *, is_starting: bool = False) -> None:
        """Ask for room for `num_workers`, unless that was just asked for. `is_starting`: some trials start now.

        A request for none withdraws the one that stands, but not before HOLD_S without a trial that waits or starts.
        """
        now_s = self._clock.monotonic_s()
        if num_workers or is_starting:
            self._needed_s = now_s
        held = (self._asked or 0) if now_s < self._needed_s + HOLD_S else 0
        self._request(num_workers or held, now_s=now_s)

    def withdraw(self) -> None:
        """Ask for nothing any more."""
        self._request(0, now_s=self._clock.monotonic_s())

    def _request(self, num_workers: int, *, now_s: float) -> None:
        is_new = num_workers != self._asked
        if not is_new and (not num_workers or now_s < self._asked_s + REPEAT_S):
            return
        try:
            self._engine.request_room(num_workers)
        except TrekError as error:
            _LOG.warning("the engine %s cannot be asked for more machines: %s", self._engine.name, error)
            return
        self._asked, self._asked_s = num_workers, now_s
