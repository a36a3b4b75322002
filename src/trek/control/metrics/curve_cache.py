"""CurveCache: curves that were computed and have not changed since, so that a page of many trials is drawn at once."""

from __future__ import annotations

import math
import threading
from array import array
from collections import OrderedDict
from collections.abc import Hashable

from trek.control.metrics.overview import Overview

MAX_POINTS = 2_000_000
"""In memory, 16 bytes each."""


class CurveCache:
    """Curves by key, the least recently used forgotten first. Safe to use from several threads.

    The caller reads a curve's version before it reads the curve, so that a change in between is never missed.
    """

    def __init__(self, *, max_points: int = MAX_POINTS) -> None:
        self._max_points = max_points
        self._num_points = 0
        self._curves: OrderedDict[Hashable, tuple[int, int, array[int], array[float]]] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, key: Hashable, *, version: int) -> Overview | None:
        """The curve of this key, if it was kept at this version."""
        with self._lock:
            kept = self._curves.get(key)
            if kept is None or kept[0] != version:
                return None
            self._curves.move_to_end(key)
        _, num_undefined, batches, values = kept
        points = zip(batches, values, strict=True)
        return Overview([(at, None if math.isnan(value) else value) for at, value in points], num_undefined)

    def keep(self, key: Hashable, overview: Overview, *, version: int) -> None:
        """Keep a curve instead of what was kept of this key."""
        batches = array("q", [at for at, _ in overview.points])
        values = array("d", [math.nan if value is None else value for _, value in overview.points])
        with self._lock:
            self._forget(key)
            self._curves[key] = (version, overview.num_undefined, batches, values)
            self._num_points += len(batches)
            while self._num_points > self._max_points:
                self._forget(next(iter(self._curves)))

    def _forget(self, key: Hashable) -> None:
        old = self._curves.pop(key, None)
        self._num_points -= len(old[2]) if old else 0
