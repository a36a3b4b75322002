"""FakeClock: a clock that stands still until a test advances it."""

from __future__ import annotations

import threading


class FakeClock:
    """Implements `trek.system.clock.Clock`. `sleep` advances it and returns at once."""

    def __init__(self, *, now_s: float = 1_000_000.0) -> None:
        self._lock = threading.Lock()
        self._now_s = now_s
        self._monotonic_s = 0.0

    def now_s(self) -> float:
        """Seconds since 1970, as set and advanced."""
        return self._now_s

    def monotonic_s(self) -> float:
        """Seconds this clock was advanced by."""
        return self._monotonic_s

    def sleep(self, seconds: float) -> None:
        """Advance by `seconds`."""
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass."""
        with self._lock:
            self._now_s += seconds
            self._monotonic_s += seconds
