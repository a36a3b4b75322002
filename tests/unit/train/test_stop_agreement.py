"""Ranks ask about a stop often enough to notice one in time, and seldom enough to cost nothing."""

from __future__ import annotations

import pytest

from trek.strategies.solo import Solo
from trek.testing.clock import FakeClock
from trek.train.loop.stop_agreement import StopAgreement, batches_between
from trek.train.loop.stopping import StopRequest
from trek.world import World


@pytest.mark.parametrize(
    ("batch_s", "batches"), [(0.001, 16), (0.125, 16), (0.126, 8), (0.5, 4), (1.0, 2), (1.1, 1), (3.0, 1), (90.0, 1)]
)
def test_questions_are_about_two_seconds_apart(batch_s: float, batches: int) -> None:
    """Every 16th batch of 3 s was one in 48 s: longer than the starter waited before it killed."""
    assert batches_between(batch_s) == batches


def run(agreement: StopAgreement, clock: FakeClock, batch_s: list[float]) -> list[int]:
    """Train batches of these durations; after which of them was asked."""
    asked = []
    agreement.ask(0)
    for number, seconds in enumerate(batch_s, start=1):
        clock.advance(seconds)
        if number >= agreement.next_batch:
            agreement.ask(number)
            asked.append(number)
    return asked


def make(clock: FakeClock, stop: StopRequest | None = None) -> StopAgreement:
    return StopAgreement(Solo(World()), stop or StopRequest(), clock=clock.monotonic_s)


def test_fast_batches_share_a_question() -> None:
    clock = FakeClock()
    assert run(make(clock), clock, [0.01] * 50) == [1, 16, 32, 48]


def test_slow_batches_do_not_and_batches_that_become_fast_or_slow_are_followed() -> None:
    clock = FakeClock()
    assert run(make(clock), clock, [30.0] + [0.01] * 33 + [3.0] * 16) == [1, 2, 16, 32, 48, 49, 50]


def test_time_between_two_questions_about_one_batch_is_not_a_batchs() -> None:
    """A validation lies between them."""
    clock = FakeClock()
    agreement = make(clock)
    agreement.ask(0)
    clock.advance(0.01)
    agreement.ask(1)
    clock.advance(100.0)
    agreement.ask(1)
    assert agreement.next_batch == 16


def test_a_stop_is_told_with_its_reason() -> None:
    clock, stop = FakeClock(), StopRequest()
    agreement = make(clock, stop)
    assert agreement.ask(3) == ""
    stop.request("signal")
    assert agreement.ask(4) == "signal"
