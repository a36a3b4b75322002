"""Pace: warns once if several processes train more slowly than one would, or if one of them holds the others up."""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable, Sequence

from trek.world import World

logger = logging.getLogger(__name__)

_FIRST, _LAST = 20, 80
_SLOW = 2.0
"""A rank whose own work takes so many times that of the median rank is named, if a step of it is not very short."""
_MIN_SLOW_MS = 2.0


class Pace:
    """Times the steps of a window early in the run, and the share of them spent on syncing gradients.

    One process would need at most `size` times the rest of a step for the same global batch. If even that is less than
    the duration of a step now, using several processes is certainly slower. At the end of the window the ranks exchange
    by `gather` how long their own work took.
    """

    def __init__(
        self,
        world: World,
        *,
        gather: Callable[[float], list[float]] = lambda own: [own],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._world = world
        self._gather = gather
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
            self.is_measuring = False
            total_s = self._clock() - self._started
            self._warn_if_slower(total_s)
            if self._world.device.type == "cpu":  # on a GPU the host does not wait where the work is done
                self._warn_of_slow_ranks(self._gather(total_s - self._sync_s))

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

    def _warn_of_slow_ranks(self, own_s: Sequence[float]) -> None:
        usual_s = statistics.median_low(own_s)
        slowest_ms, usual_ms = (seconds / (_LAST - _FIRST) * 1e3 for seconds in (max(own_s), usual_s))
        if self._world.is_leader and slowest_ms >= max(_SLOW * usual_ms, _MIN_SLOW_MS):
            logger.warning(
                "the other ranks wait for rank %d: its own part of a step takes %.2f ms, the median rank's %.2f ms. "
                "Check its data, its machine, and what else runs there.",
                own_s.index(max(own_s)), slowest_ms, usual_ms,
            )  # fmt: skip
