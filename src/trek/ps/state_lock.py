"""StateLock: many threads may read a state at the same time, or one may change it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class StateLock:
    """Who waits to change the state goes before those who come to read it."""

    def __init__(self) -> None:
        self._condition = threading.Condition(threading.Lock())
        self._num_readers = 0
        self._num_writers_waiting = 0

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Nobody changes the state meanwhile."""
        with self._condition:
            while self._num_writers_waiting:
                self._condition.wait()
            self._num_readers += 1
        try:
            yield
        finally:
            with self._condition:
                self._num_readers -= 1
                if not self._num_readers:
                    self._condition.notify_all()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Nobody else reads or changes the state meanwhile."""
        with self._condition:
            self._wait_for_readers()
            yield

    def wait_for(self, is_so: Callable[[], bool], timeout_s: float) -> bool:
        """While writing, let others go on until something is so, or the time is over; whether it is so."""
        self._condition.wait_for(is_so, timeout_s)
        self._wait_for_readers()
        return is_so()

    def notify_all(self) -> None:
        """While writing, have those in `wait_for` look again."""
        self._condition.notify_all()

    def _wait_for_readers(self) -> None:
        if not self._num_readers:
            return
        self._num_writers_waiting += 1
        try:
            while self._num_readers:
                self._condition.wait()
        finally:
            self._num_writers_waiting -= 1
            self._condition.notify_all()
