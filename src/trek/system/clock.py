"""Clock: the time as an argument. Entry points pass a SystemClock; tests pass a FakeClock of `trek.testing`."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Two readings and a wait. Safe to use from several threads."""

    def now_s(self) -> float:
        """Seconds since 1970; the system may set it back."""

    def monotonic_s(self) -> float:
        """Seconds that only increase, from an arbitrary start: for durations and deadlines."""

    def sleep(self, seconds: float) -> None:
        """Return once `seconds` have passed."""


class SystemClock:
    """The clock of this machine."""

    def now_s(self) -> float:
        """Seconds since 1970."""
        return time.time()

    def monotonic_s(self) -> float:
        """Seconds that only increase."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)
