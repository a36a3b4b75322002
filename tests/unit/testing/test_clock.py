"""The clock that tests set, beside the one of this machine."""

from __future__ import annotations

import pytest

from trek.system.clock import Clock, SystemClock
from trek.testing.clock import FakeClock


@pytest.mark.parametrize("clock", [SystemClock(), FakeClock()], ids=["system", "fake"])
def test_a_clock_moves_by_at_least_what_was_slept(clock: Clock) -> None:
    now_s, monotonic_s = clock.now_s(), clock.monotonic_s()
    clock.sleep(0.01)
    assert clock.monotonic_s() - monotonic_s >= 0.01
    assert clock.now_s() >= now_s


def test_a_fake_clock_stands_still_until_it_is_advanced() -> None:
    clock = FakeClock(now_s=100.0)
    assert (clock.now_s(), clock.now_s()) == (100.0, 100.0)
    clock.advance(5)
    assert (clock.now_s(), clock.monotonic_s()) == (105.0, 5.0)
