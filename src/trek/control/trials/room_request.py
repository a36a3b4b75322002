"""RoomRequest: asks an engine whose cluster can grow for what the queue needs, and withdraws it when nothing waits."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from trek.control.trials.scheduler import Occupied, Request, SlotPlan
from trek.engines import Engine
from trek.errors import TrekError

MAX_WORKERS = 10_000
"""More is never asked for at once: the cluster has a limit of its own far below."""
_LOG = logging.getLogger(__name__)


def wanted_workers(queue: Sequence[Request], running: Sequence[Occupied], plan: SlotPlan) -> int:
    """How many workers there must be room for so that nobody waits for slots; 0 if nobody does."""
    lacking = set(plan.without_room)
    waiting = sum(request.slots for request in queue if request.trial_id in lacking)
    starting = sum(plan.sizes[trial_id] for trial_id in plan.start)
    return min(waiting + starting + sum(one.slots for one in running), MAX_WORKERS) if waiting else 0


class RoomRequest:
    """See the module. Used by the supervisor's thread only."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._asked = 0

    def ask(self, num_workers: int) -> None:
        """Ask for room for `num_workers`, unless that is what was asked for last."""
        if num_workers == self._asked:
            return
        try:
            self._engine.request_room(num_workers)
        except TrekError as error:
            _LOG.warning("the engine %s cannot be asked for more machines: %s", self._engine.name, error)
            return
        self._asked = num_workers
