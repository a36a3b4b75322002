"""StartLimits: when to stop starting workers that do not come so far as to train."""

from __future__ import annotations

import signal

import pytest

from trek.elastic.membership_settings import MembershipSettings
from trek.elastic.start_limits import PAUSE_S, StartLimits

SETTINGS = MembershipSettings(1, 2, loss_s=60)
TOO_MANY = SETTINGS.max_losses + 1


def kill(limits: StartLimits, num: int, *, now_s: float, has_joined: bool = False) -> None:
    for _ in range(num):
        limits.note_end(-9, has_joined=has_joined, now_s=now_s)


def test_number_and_time_must_both_be_exceeded() -> None:
    limits = StartLimits(SETTINGS)
    kill(limits, TOO_MANY - 1, now_s=0)
    assert not limits.futility(1000)
    kill(limits, 1, now_s=1)
    assert not limits.futility(60)
    assert limits.futility(61) == "7 workers were killed before they joined the others, for 61 s"


def test_a_new_generation_and_workers_that_train_are_hope() -> None:
    limits = StartLimits(SETTINGS)
    kill(limits, TOO_MANY, now_s=0)
    limits.follow(0, 0, num_training=1, now_s=50)
    assert not limits.futility(110)
    assert limits.futility(111)
    limits.follow(1, 0, num_training=0, now_s=112)
    assert not limits.futility(1000)


def test_after_many_kills_starts_are_rare() -> None:
    limits = StartLimits(SETTINGS)
    assert limits.may_start(0)
    assert limits.may_start(0)
    kill(limits, TOO_MANY, now_s=1)
    assert not limits.may_start(1)
    assert limits.may_start(PAUSE_S)
    assert not limits.may_start(PAUSE_S + 1)


def test_members_that_are_killed_are_not_counted_here() -> None:
    limits = StartLimits(SETTINGS)
    kill(limits, 100, now_s=0, has_joined=True)
    assert not limits.futility(1000)
    assert limits.may_start(0)


@pytest.mark.parametrize("has_joined", [False, True])
def test_crashes_count_by_number_until_something_is_completed(has_joined: bool) -> None:
    limits = StartLimits(SETTINGS)
    for num_advances in range(3):
        limits.follow(num_advances, num_advances, num_training=1, now_s=0)
        for _ in range(TOO_MANY - 1):
            limits.note_end(-signal.SIGSEGV, has_joined=has_joined, now_s=0)
        assert not limits.is_crashing
    limits.note_end(-signal.SIGABRT, has_joined=has_joined, now_s=0)
    assert limits.is_crashing
