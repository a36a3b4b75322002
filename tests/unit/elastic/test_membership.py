"""Membership: who forms which generation, decided without sockets or clocks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trek.elastic.actions import Abandon, Action, Dismiss, Fail, Form, PutOut, Regroup
from trek.elastic.membership import NOTHING, Membership, Progress
from trek.elastic.membership_settings import MembershipSettings
from trek.errors import InputError
from trek.testing.elastic_simulation import BrokenInvariant, SimulationSettings, simulate

_NO_EVICTIONS = SimulationSettings(get_stuck=0.0, stuck_s=1e6)
"""Histories in which no worker is evicted because it waits."""


def test_the_first_generation_waits_for_all_that_are_wanted() -> None:
    job = Membership(MembershipSettings(1, 3))
    assert [_enter(job, name) for name in "ab"] == [[], []]
    (formed,) = _enter(job, "c")
    assert isinstance(formed, Form)
    assert [(seat.member, seat.rank, seat.local_size) for seat in formed.seats] == [
        ("a", 0, 3),
        ("b", 1, 3),
        ("c", 2, 3),
    ]
    assert formed.source is None, "nobody has a state yet"


def test_the_first_generation_does_not_wait_for_ever() -> None:
    job = Membership(MembershipSettings(1, 3, settle_s=5))
    _enter(job, "a")
    assert job.expire(4.0) == []
    (formed,) = job.expire(5.0)
    assert _names(formed) == ["a"]


def test_fewer_than_the_minimum_never_train() -> None:
    job = Membership(MembershipSettings(2, 3, settle_s=0))
    assert _enter(job, "a") == []
    assert job.expire(10.0) == []
    assert _names(_enter(job, "b")[0]) == ["a", "b"]


def test_survivors_of_a_death_form_the_next_generation_with_the_furthest_state() -> None:
    job = _training("abc")
    assert job.lose("a", reason="killed", now_s=1) == [Abandon(1)]
    assert job.arrive("c", generation=1, progress=(7, 0), now_s=1) == [Abandon(1)]
    (formed,) = job.arrive("b", generation=1, progress=(8, 0), now_s=1)
    assert isinstance(formed, Form)
    assert (_names(formed), formed.generation, formed.source) == (["b", "c"], 2, "b")
    assert job.num_missing == 1, "the starter is to start another one"


@pytest.mark.parametrize("how", ["lost", "arrives"])
@pytest.mark.parametrize("is_awaited", [False, True], ids=["no worker waits", "a replacement waits"])
def test_those_who_train_in_a_generation_that_ended_are_abandoned_whoever_waits(how: str, is_awaited: bool) -> None:
    """Its peers stood still in a collective while a replacement waited for them."""
    job = _training("abc", most=4)
    if is_awaited:
        _enter(job, "d")
    if how == "lost":
        actions = job.lose("a", reason="killed", now_s=1)
    else:
        actions = job.arrive("a", generation=1, progress=(3, 0), now_s=1)
    assert actions == [Abandon(1), *([Regroup(1)] if is_awaited else [])]
    assert job.expire(2) == actions, "until they have arrived"


def test_a_member_that_joins_a_generation_late_learns_that_it_has_ended() -> None:
    """It was placed while its connection was lost, and then waited for a peer that had been lost meanwhile."""
    job = _training("ab")
    job.lose("b", reason="killed", now_s=1)
    job.arrive("a", generation=1, progress=(3, 0), now_s=1)
    _enter(job, "c")
    formed, _ = job.arrive("a", generation=1, progress=(3, 0), now_s=2)
    (formed,) = job.arrive("a", generation=2, progress=(3, 0), now_s=3)
    job.lose("c", reason="killed", now_s=4)
    assert job.arrive("a", generation=2, progress=(3, 0), now_s=4) == [formed, Abandon(3)]


def test_a_member_that_goes_on_waiting_in_a_generation_that_ended_is_put_out() -> None:
    job = _training("ab")
    job.beat("a", waiting_s=100, now_s=5)
    job.arrive("b", generation=1, progress=(3, 0), now_s=6)
    assert job.beat("a", waiting_s=131, now_s=66) == [], "it has had 60 s to notice"
    put_out, formed = job.beat("a", waiting_s=132, now_s=66.5)
    assert put_out == PutOut("a", "still waited in generation 1, which has ended")
    assert _names(formed) == ["b"]


def test_a_dismissed_process_that_goes_on_waiting_is_put_out_too() -> None:
    job = _training("ab")
    job.lose("a", reason="its connection ended", now_s=5)
    dismissed = Dismiss("a", "its connection ended")
    assert job.beat("a", waiting_s=60, now_s=65) == [dismissed]
    assert job.beat("a", waiting_s=61, now_s=66) == [dismissed, PutOut("a", "its connection ended")]


def test_a_member_that_is_busy_in_a_generation_that_ended_is_waited_for() -> None:
    job = _training("ab")
    job.arrive("b", generation=1, progress=(3, 0), now_s=6)
    assert job.beat("a", waiting_s=0, now_s=900) == []
    assert job.beat("a", waiting_s=59, now_s=959) == []


def test_those_who_stay_keep_the_order_of_their_ranks_before_those_who_join() -> None:
    job = _training("abc", most=4)
    assert _enter(job, "d") == [Regroup(1)]
    formed = _arrive_all(job, "cab")
    assert _names(formed) == ["a", "b", "c", "d"]
    assert isinstance(formed, Form)
    assert formed.source in "abc"


def test_a_member_that_joined_but_received_nothing_gives_nothing() -> None:
    """A worker whose source died in the middle of joining was taken for a survivor."""
    job = _training("a", most=2)
    _enter(job, "b")
    _arrive_all(job, "a")
    job.lose("a", reason="killed", now_s=2)
    (formed,) = job.arrive("b", generation=2, progress=NOTHING, now_s=2)
    assert isinstance(formed, Form)
    assert formed.source is None, "it goes on from a checkpoint"
    assert job.num_restarts == 1


def test_a_member_leaves_at_the_boundary_and_is_dismissed() -> None:
    job = _training("ab")
    assert job.leave("a", reason="SIGTERM", now_s=1) == [Regroup(1)]
    job.arrive("a", generation=1, progress=(3, 0), now_s=2)
    dismissed, formed = job.arrive("b", generation=1, progress=(3, 0), now_s=2)
    assert dismissed == Dismiss("a", "left the job")
    assert _names(formed) == ["b"]


def test_a_member_that_alone_has_the_furthest_state_leaves_one_boundary_later() -> None:
    job = _training("abc")
    job.leave("a", reason="SIGTERM", now_s=1)
    job.lose("c", reason="killed", now_s=1)
    job.arrive("a", generation=1, progress=(5, 0), now_s=2)
    formed, again = job.arrive("b", generation=1, progress=(4, 0), now_s=2)
    assert isinstance(formed, Form)
    assert (_names(formed), formed.source) == (["a", "b"], "a")
    assert again == Regroup(2)


def test_the_last_member_cannot_leave_before_another_is_ready() -> None:
    job = _training("a", most=2)
    assert job.leave("a", reason="SIGTERM", now_s=1) == []
    assert _enter(job, "b") == [Regroup(1)]


def test_late_messages_of_a_dead_generation_are_refused() -> None:
    job = _training("abc")
    job.lose("c", reason="not heard of", now_s=1)
    _arrive_all(job, "ab")
    (refused,) = job.arrive("c", generation=1, progress=(100, 0), now_s=2)
    assert isinstance(refused, Dismiss)
    assert job.join("c", host="here", now_s=3) == [Dismiss("c", "not heard of")]


def test_a_form_whose_answer_was_lost_is_told_again() -> None:
    job = _training("ab")
    job.lose("b", reason="killed", now_s=1)
    formed = job.arrive("a", generation=1, progress=(3, 0), now_s=1)
    assert job.arrive("a", generation=1, progress=(3, 0), now_s=2) == formed


def test_a_member_that_is_not_heard_of_is_put_out() -> None:
    job = _training("ab", heartbeat_s=10)
    job.beat("a", now_s=15)
    put_out, abandoned = job.expire(16)
    assert put_out == PutOut("b", "not heard of for 16 s")
    assert abandoned == Abandon(1)


def test_scaling_down_lets_the_highest_ranks_go() -> None:
    job = _training("abc")
    assert job.scale(1, now_s=1) == [Regroup(1)]
    for name in "ab":
        job.arrive(name, generation=1, progress=(3, 0), now_s=2)
    *dismissed, formed = job.arrive("c", generation=1, progress=(3, 0), now_s=2)
    assert [a.member for a in dismissed if isinstance(a, Dismiss)] == ["b", "c"]
    assert _names(formed) == ["a"]
    assert job.num_missing == 0


def test_scaling_stays_within_the_range() -> None:
    job = _training("abc", least=2)
    job.scale(99, now_s=1)
    assert job.target == 3
    job.scale(0, now_s=1)
    assert job.target == 2


def test_a_job_that_loses_everybody_too_often_fails() -> None:
    job = Membership(MembershipSettings(1, 1, max_restarts=1))
    for index in range(2):
        _enter(job, f"w{index}")
        job.beat(f"w{index}", progress=(5 - index, 0), now_s=0)
        job.lose(f"w{index}", reason="killed", now_s=0)
    (failed,) = _enter(job, "w2")
    assert failed == Fail("no worker survived, and the job has gone on from its last checkpoint once already")
    assert job.is_over


def test_a_job_that_comes_further_every_time_may_lose_everybody_again_and_again() -> None:
    job = Membership(MembershipSettings(1, 1, max_restarts=1))
    for index in range(10):
        _enter(job, f"w{index}")
        job.beat(f"w{index}", progress=(index + 1, 0), now_s=0)
        job.lose(f"w{index}", reason="killed", now_s=0)
    assert not job.is_over


def test_a_job_that_may_not_begin_again_fails_with_its_last_worker() -> None:
    job = Membership(MembershipSettings(1, 1, max_restarts=0))
    _enter(job, "a")
    job.lose("a", reason="killed", now_s=0)
    assert _enter(job, "b") == [Fail("no worker survived")]


def _lose_without_a_step(job: Membership, *, every_s: float, num: int) -> list[Action]:
    actions: list[Action] = []
    for index in range(num):
        job.join(f"w{index}", host="here", now_s=index * every_s)
        actions += job.lose(f"w{index}", reason="killed", now_s=index * every_s)
    return actions


def test_a_job_that_loses_worker_after_worker_and_completes_nothing_fails() -> None:
    job = Membership(MembershipSettings(1, 2, max_restarts=100, loss_s=60))
    (failed,) = _lose_without_a_step(job, every_s=11, num=7)
    assert failed == Fail("7 workers were lost within 66 s without a step completed between them")


def test_many_losses_in_a_short_time_and_few_in_a_long_one_end_no_job() -> None:
    settings = MembershipSettings(1, 2, max_restarts=100, loss_s=60)
    assert _lose_without_a_step(Membership(settings), every_s=1, num=50) == []
    assert _lose_without_a_step(Membership(settings), every_s=1000, num=6) == []


def test_losses_before_a_completed_step_do_not_count() -> None:
    job = Membership(MembershipSettings(1, 2, max_restarts=100, loss_s=60))
    _lose_without_a_step(job, every_s=11, num=6)
    job.join("a", host="here", now_s=66)
    job.beat("a", progress=(1, 0), now_s=66)
    assert job.lose("a", reason="killed", now_s=67) == []
    assert job.num_advances == 1


def test_a_finished_job_ends_those_who_wait_for_it() -> None:
    job = _training("a", most=2)
    job.join("b", host="here", now_s=0)
    assert job.finish("a", generation=1, now_s=9) == [Dismiss("b", "the job has ended")]
    assert job.join("c", host="here", now_s=9) == [Dismiss("c", "the job has ended")]
    assert job.num_missing == 0


def test_a_snapshot_holds_everything() -> None:
    job = _training("abc")
    job.leave("a", reason="SIGTERM", now_s=1)
    job.lose("b", reason="killed", now_s=1)
    kept = json.loads(json.dumps(job.snapshot()))
    restored = Membership.restore(job.settings, kept, now_s=50)
    assert restored.snapshot() == job.snapshot() | {"members": restored.snapshot()["members"]}
    assert restored.expire(51) == [Abandon(1)], "no member is lost because its coordinator was away"
    for membership in (job, restored):
        membership.arrive("a", generation=1, progress=(2, 0), now_s=52)
    assert job.arrive("c", generation=1, progress=(2, 0), now_s=52) == restored.arrive(
        "c", generation=1, progress=(2, 0), now_s=52
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"min_workers": 3, "max_workers": 2}, "min_workers must be at most max_workers, got 3 and 2"),
        ({"min_workers": 0}, "min_workers must be a whole number of at least 1, got 0"),
        ({"max_workers": "3"}, "max_workers must be a whole number of at least 1, got '3'"),
        ({"max_restarts": -1}, "max_restarts must be a whole number of at least 0, got -1"),
        ({"heartbeat_s": 0}, "heartbeat_s must be a number of seconds greater than 0, got 0"),
        ({"stuck_s": "a minute"}, "stuck_s must be a number of seconds greater than 0, got 'a minute'"),
        ({"loss_s": -1}, "loss_s must be a number of seconds greater than 0, got -1"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        MembershipSettings(**{"min_workers": 1, "max_workers": 3, **settings})


def test_whoever_is_interrupted_in_the_last_step_ends_with_the_others() -> None:
    """It waited for a generation that was never formed: `a` had completed the step in which `c` died."""
    job = _training("abc")
    job.finish("a", generation=1, now_s=1)
    assert job.lose("c", reason="killed", now_s=1) == [Abandon(1)]
    assert job.arrive("b", generation=1, progress=(11, 0), now_s=1) == [Dismiss("b", "the job has ended")]
    assert not job.members


def test_random_histories_train_every_step_once() -> None:
    assert simulate(range(150)) > 100


def test_jobs_that_need_all_their_workers_come_to_their_end() -> None:
    assert simulate(range(1000, 1050), SimulationSettings(min_workers=3, max_workers=3)) > 30


def test_workers_that_wait_in_a_generation_that_ended_are_woken_up_and_need_no_eviction() -> None:
    assert simulate(range(2000, 2100), _NO_EVICTIONS) > 70


def test_the_simulation_notices_when_workers_that_wait_are_not_woken_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def summons(self: Membership) -> list[Action]:
        actions = real(self)
        is_awaited = any(isinstance(action, Regroup) for action in actions)
        return [action for action in actions if not (is_awaited and isinstance(action, Abandon))]

    real = Membership._summons
    monkeypatch.setattr(Membership, "_summons", summons)
    with pytest.raises(BrokenInvariant, match="did not end"):
        simulate(range(2000, 2100), _NO_EVICTIONS)


def test_the_simulation_notices_when_the_furthest_state_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def arrive(self: Membership, name: str, *, progress: Progress, **arguments: Any) -> list[Action]:
        return real(self, name, progress=min(progress, (0, 0)), **arguments)

    real = Membership.arrive
    monkeypatch.setattr(Membership, "arrive", arrive)
    with pytest.raises(BrokenInvariant, match="somebody is further"):
        simulate(range(200))


@pytest.mark.campaign
@pytest.mark.timeout(7200)
def test_a_hundred_thousand_histories() -> None:
    assert simulate(range(100_000)) > 90_000


def _enter(job: Membership, name: str) -> list[Action]:
    job.join(name, host="here", now_s=0)
    return job.ready(name, now_s=0)


def _training(names: str, *, least: int = 1, most: int | None = None, heartbeat_s: float = 1000) -> Membership:
    settings = MembershipSettings(least, most or len(names), heartbeat_s=heartbeat_s)
    job = Membership(settings, num_workers=len(names))
    for name in names:
        _enter(job, name)
    job.scale(settings.max_workers, now_s=0)
    assert (job.generation, job.num_training) == (1, len(names))
    return job


def _arrive_all(job: Membership, names: str) -> Action:
    actions: list[Action] = []
    for name in names:
        actions += job.arrive(name, generation=job.generation, progress=(3, 0), now_s=2)
    return actions[-1]


def _names(action: Action) -> list[str]:
    assert isinstance(action, Form)
    return [seat.member for seat in action.seats]
