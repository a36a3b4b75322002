"""DataWait: how long the training thread has waited for data, written by its Feed and read from any thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

T = TypeVar("T")
_END = object()


class DataWait:
    """Counts seconds. A wait that is not over counts as well, so a reader sees a loader that is stuck."""

    def __init__(self, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        # One tuple, replaced as a whole: a reader on another thread never sees half of a change.
        self._state: tuple[float, float | None] = (0.0, None)

    def seconds(self) -> float:
        """Of all waits so far."""
        total_s, began_s = self._state
        return total_s if began_s is None else total_s + self._clock() - began_s

    def timed(self, items: Iterator[T]) -> Iterator[T]:
        """`items`, with the time that each takes to arrive counted: two readings of the clock."""
        clock = self._clock
        while True:
            total_s, began_s = self._state[0], clock()
            self._state = (total_s, began_s)
            try:
                item = next(items, _END)
            finally:
                self._state = (total_s + clock() - began_s, None)
            if item is _END:
                return
            yield item  # type: ignore[misc]  # it is not the sentinel
