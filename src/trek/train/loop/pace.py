"""Pace: warns once if several processes train more slowly than one process would."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from trek.world import World

logger = logging.getLogger(__name__)

_FIRST, _LAST = 20, 80


class Pace:
    """Times the steps of a window early in the run, and the share of them spent on syncing gradients.

    One process would need at most `size` times the rest of a step for the same global batch. If even that is less than
    the duration of a step now, using several processes is certainly slower.
    """

    def __init__(self, world: World, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._world = world
        self._clock = clock
        self._num_steps = 0
        self._sync_s = 0.0
        self._started = 0.0
        self.is_measuring = world.is_distributed and not world.max_size

    def add_sync(self, seconds: float) -> None:
        """Count a step whose gradients took `seconds` to sync."""
        self._num_steps += 1
        if self._num_steps == _FIRST:
            self._started, self._sync_s = self._clock(), 0.0
            return
        self._sync_s += seconds
        if self._num_steps == _LAST:
            self._warn_if_slower(self._clock() - self._started)
            self.is_measuring = False

    def _warn_if_slower(self, total_s: float) -> None:
        steps = _LAST - _FIRST
        step_ms, sync_ms = total_s / steps * 1e3, self._sync_s / steps * 1e3
        single_ms = (step_ms - sync_ms) * self._world.size
        if self._world.is_leader and single_ms < step_ms:
            logger.warning(
                "%d processes are slower than one for this model: a step takes %.2f ms, of which %.2f ms are spent on "
                "syncing gradients; one process would need at most %.2f ms. Use fewer workers, or a larger batch.",
                self._world.size, step_ms, sync_ms, single_ms,
            )  # fmt: skip
