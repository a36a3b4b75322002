"""StopAgreement: after which batches the ranks ask each other whether to stop, so that all stop after the same one.

Each question costs a small message, so fast batches share one. Slow batches do not: a stop is noticed within about
`_EVERY_S` seconds, or one batch if that takes longer. How many batches that is, the ranks agree on with each answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import torch

from trek.strategies import Strategy
from trek.train.loop.stopping import Reason, StopRequest
from trek.train.loop.worker_group import WorkerGroup

_EVERY_S = 2.0
_MAX_BATCHES = 16


class StopAgreement:
    """One rank's side. All ranks call `ask` after the batches that `next_batch` names, and wherever else all do."""

    def __init__(
        self,
        strategy: Strategy,
        stop: StopRequest,
        *,
        group: WorkerGroup | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._strategy = strategy
        self._stop = stop
        self._group = group or WorkerGroup()
        self._clock = clock
        self._asked_at: tuple[int, float] | None = None
        self._interval = 1
        self.next_batch = 0
        """The number of batches after which to ask next; the same on every rank."""
        self.is_meeting_due = False
        """Whether the workers are to meet at the next step boundary; the same on every rank."""

    def ask(self, batches: int) -> Reason:
        """Why the run should stop after `batches`, the same on every rank; empty if no rank was asked to."""
        is_leaving = self._stop.reason == "signal" and self._group.leave()
        flags = [self._stop.is_set and not is_leaving, self._group.wants_meeting, not is_leaving]
        own = torch.tensor([self._seconds_per_batch(batches), *flags], dtype=torch.float64)
        batch_s, is_set, is_meeting_due, is_any_staying = self._strategy.reduce(own, "max").tolist()
        is_set = is_set or not is_any_staying
        self.is_meeting_due = bool(is_meeting_due)
        if batch_s > 0:
            self._interval = batches_between(batch_s)
        self._asked_at = batches, self._clock()
        self.next_batch = (batches // self._interval + 1) * self._interval
        if not is_set:
            return ""
        reason: Reason = next(reason for reason in self._strategy.gather(self._stop.reason) if reason)
        self._stop.request(reason)
        return reason

    def state_dict(self) -> dict[str, int]:
        """What must be the same on every rank."""
        return {
            "interval": self._interval,
            "next_batch": self.next_batch,
            "is_meeting_due": int(self.is_meeting_due),
        }

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Restore `state_dict`."""
        self._interval, self.next_batch = state["interval"], state["next_batch"]
        self.is_meeting_due = bool(state["is_meeting_due"])

    def _seconds_per_batch(self, batches: int) -> float:
        """Measured since the last question; 0 if no batch was trained since."""
        if self._asked_at is None or self._asked_at[0] == batches:
            return 0.0
        before, time_s = self._asked_at
        return (self._clock() - time_s) / (batches - before)


def batches_between(batch_s: float) -> int:
    """How many batches of `batch_s` seconds to train between two questions: a power of two."""
    interval = _MAX_BATCHES
    while interval > 1 and interval * batch_s > _EVERY_S:
        interval //= 2
    return interval
