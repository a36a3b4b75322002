"""DataWait: seconds spent waiting for data, a wait that is not over included."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from trek.testing.clock import FakeClock
from trek.train.loop.data_wait import DataWait


def slow(clock: FakeClock, *, seconds: float, count: int) -> Iterator[int]:
    for number in range(count):
        clock.advance(seconds)
        yield number


def test_only_the_time_until_an_item_arrives_counts() -> None:
    clock = FakeClock()
    wait = DataWait(clock=clock.monotonic_s)
    for _ in wait.timed(slow(clock, seconds=2.0, count=3)):
        clock.advance(100.0)  # training
    assert wait.seconds() == pytest.approx(6.0)


def test_a_wait_that_is_not_over_counts_too() -> None:
    clock = FakeClock()
    wait = DataWait(clock=clock.monotonic_s)
    seen = []

    def items() -> Iterator[int]:
        clock.advance(5.0)
        seen.append(wait.seconds())  # as a reader on another thread sees it
        yield 1

    assert list(wait.timed(items())) == [1]
    assert seen == [pytest.approx(5.0)]


def test_a_reader_that_fails_ends_its_wait() -> None:
    clock = FakeClock()
    wait = DataWait(clock=clock.monotonic_s)

    def items() -> Iterator[int]:
        clock.advance(1.0)
        raise OSError("gone")
        yield 1

    with pytest.raises(OSError, match="gone"):
        list(wait.timed(items()))
    clock.advance(50.0)
    assert wait.seconds() == pytest.approx(1.0)
