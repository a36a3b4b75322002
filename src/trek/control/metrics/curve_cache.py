"""CurveCache: curves that were computed and have not changed since, so that a page of many trials is drawn at once."""

from __future__ import annotations

import threading
from array import array
from collections import OrderedDict
from collections.abc import Hashable, Sequence

Point = tuple[int, float]
MAX_POINTS = 2_000_000
"""In memory, 16 bytes each."""


class CurveCache:
    """Curves by key, the least recently used forgotten first. Safe to use from several threads.

    The caller reads a curve's version before it reads the curve, so that a change in between is never missed.
    """

    def __init__(self, *, max_points: int = MAX_POINTS) -> None:
        self._max_points = max_points
        self._num_points = 0
        self._curves: OrderedDict[Hashable, tuple[int, array[int], array[float]]] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, key: Hashable, *, version: int) -> list[Point] | None:
        """The curve of this key, if it was kept at this version."""
        with self._lock:
            kept = self._curves.get(key)
            if kept is None or kept[0] != version:
                return None
            self._curves.move_to_end(key)
        return list(zip(kept[1], kept[2], strict=True))

    def keep(self, key: Hashable, points: Sequence[Point], *, version: int) -> None:
        """Keep a curve instead of what was kept of this key."""
        made = (version, array("q", [at for at, _ in points]), array("d", [value for _, value in points]))
        with self._lock:
            self._forget(key)
            self._curves[key] = made
            self._num_points += len(points)
            while self._num_points > self._max_points:
                self._forget(next(iter(self._curves)))

    def _forget(self, key: Hashable) -> None:
        old = self._curves.pop(key, None)
        self._num_points -= len(old[1]) if old else 0
