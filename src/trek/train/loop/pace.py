"""Pace: notices that several processes train more slowly than one would, and says so once."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from trek.world import World

logger = logging.getLogger(__name__)

_FIRST, _LAST = 20, 80


class Pace:
    """Times the steps of a window early in the run, and how much of each was spent on making gradients global.

    One process would need at most `size` times the rest of a step for the same global batch. When even that is less
    than what the step takes now, the processes are certainly a loss.
    """

    def __init__(self, world: World, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._world = world
        self._clock = clock
        self._num_steps = 0
        self._sync_s = 0.0
        self._started = 0.0
        self.is_measuring = world.is_distributed

    def add_sync(self, seconds: float) -> None:
        """One more step; its gradients took `seconds` to become global."""
        self._num_steps += 1
        if self._num_steps == _FIRST:
            self._started, self._sync_s = self._clock(), 0.0
            return
        self._sync_s += seconds
        if self._num_steps == _LAST:
            self._judge(self._clock() - self._started)
            self.is_measuring = False

    def _judge(self, total_s: float) -> None:
        steps = _LAST - _FIRST
        step_ms, sync_ms = total_s / steps * 1e3, self._sync_s / steps * 1e3
        alone_ms = (step_ms - sync_ms) * self._world.size
        if self._world.is_leader and alone_ms < step_ms:
            logger.warning(
                "%d processes train this slower than one would: a step takes %.2f ms, %.2f ms of it to exchange "
                "gradients; one process would need at most %.2f ms. Use fewer workers, or a larger batch.",
                self._world.size, step_ms, sync_ms, alone_ms,
            )  # fmt: skip
