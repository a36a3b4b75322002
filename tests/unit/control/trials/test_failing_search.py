"""Errors from outside: trials wait before they are restarted, and a search whose trials all fail ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from trek.client import models
from trek.control.trials.endings import MAX_RESTART_DELAY_S, Ending, delay_after
from trek.control.trials.failing_search import NUM_SAME_ERRORS
from trek.testing.clock import FakeClock

MakePlane = Callable[..., Any]
SEARCH = {"name": "random", "metric": "error", "max_length": {"batches": 100}, "max_trials": 8}
REPORT = models.Report(
    run=1, metrics=[models.MetricPoint(group="training", batches=1, metrics={"loss": 0.5}, time_s=1.0)]
).model_dump_json()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def run_fast(plane: Any, number: int, clock: FakeClock) -> models.ExperimentDetails:
    """Move on until the experiment has ended; every delay has passed by the next tick."""

    def has_ended() -> bool:
        clock.advance(MAX_RESTART_DELAY_S)
        return plane.services.experiments.get(number).state in models.ENDED

    plane.run_until(has_ended)
    return plane.services.experiments.get(number)


def test_delays_grow_up_to_a_bound_and_only_errors_from_outside_have_them() -> None:
    delays = [delay_after(Ending("outside"), restarts=restarts) for restarts in range(40)]
    assert delays[:4] == [2, 4, 8, 16]
    assert delays == sorted(delays)
    assert delays[-1] == MAX_RESTART_DELAY_S
    assert delay_after(Ending("lost"), restarts=3) == 0


def test_an_error_from_outside_is_retried_after_a_delay_that_the_next_supervisor_keeps(
    make_plane: MakePlane, clock: FakeClock
) -> None:
    plane = make_plane("outcome('outside', 'no network') if run == 1 else outcome('done')", clock=clock)
    number = plane.create()
    plane.run_until(lambda: plane.services.experiments.get(number).trials[0].restarts == 1)
    clock.advance(1)
    after = make_plane("outcome('done')", clock=clock)
    after.supervisor._find_gangs()
    for _ in range(3):
        after.supervisor.tick()
    trial = after.services.experiments.get(number).trials[0]
    assert (trial.state, trial.run) == ("queued", 1)
    assert trial.waiting == "waits 2 s before restart 1 of 5: no network"
    clock.advance(1)
    assert after.run_to_end(number).state == "completed"


def test_activating_an_experiment_ends_its_delays(make_plane: MakePlane, clock: FakeClock) -> None:
    plane = make_plane("outcome('outside', 'no network') if run == 1 else outcome('done')", clock=clock)
    number = plane.create()
    plane.run_until(lambda: plane.services.experiments.get(number).trials[0].restarts == 1)
    plane.services.experiments.pause(number)
    plane.services.experiments.activate(number)
    assert plane.run_to_end(number).state == "completed"


@pytest.mark.parametrize("kind", ["outside", "user", "input"])
def test_a_search_whose_first_trials_all_fail_alike_ends_with_their_error(
    make_plane: MakePlane, clock: FakeClock, kind: str
) -> None:
    plane = make_plane(f"outcome({kind!r}, 'it is gone')", clock=clock)
    details = run_fast(plane, plane.create(searcher=SEARCH, max_restarts=2), clock)
    assert (details.state, details.error, details.failure) == ("errored", "it is gone", kind)
    started = [trial for trial in details.trials if trial.run > 0]
    assert NUM_SAME_ERRORS <= len(started) <= NUM_SAME_ERRORS + 1  # with two slots one more may run by then
    assert {trial.state for trial in details.trials if trial.run == 0} == {"killed"}


def test_trials_that_were_never_started_say_why_they_are_held_back(make_plane: MakePlane, clock: FakeClock) -> None:
    plane = make_plane("outcome('outside', 'no network')", clock=clock)
    number = plane.create(searcher=SEARCH)
    plane.run_until(
        lambda: sum(trial.restarts for trial in plane.services.experiments.get(number).trials) >= NUM_SAME_ERRORS
    )
    plane.run_until(lambda: not plane.supervisor.running)
    last = plane.services.experiments.get(number).trials[-1]
    assert last.waiting == "waits for retries of earlier trials, which all failed: no network"
    plane.services.experiments.kill(number)


def test_a_search_continues_when_the_outside_works_again(make_plane: MakePlane, clock: FakeClock) -> None:
    plane = make_plane("outcome('outside', 'no network') if run == 1 else outcome('done')", clock=clock)
    details = run_fast(plane, plane.create(searcher=SEARCH), clock)
    assert [trial.state for trial in details.trials] == ["completed"] * 8


@pytest.mark.parametrize(
    "script",
    [
        "outcome('user', 'it fails at ' + os.environ['TREK_TRIAL_ID'])",
        "outcome('user', 'alike') if os.environ['TREK_TRIAL_ID'] != '1' else outcome('done')",
        f"open(folder + '/spool.jsonl', 'w').write({REPORT + chr(10)!r}); outcome('user', 'alike')",
        "outcome('rejected', 'alike')",
    ],
    ids=["other errors", "one that completed", "metrics", "rejected hyperparameters"],
)
def test_all_trials_are_tried_where_failing_may_be_theirs_alone(make_plane: MakePlane, script: str) -> None:
    plane = make_plane(script)
    details = plane.run_to_end(plane.create(searcher=SEARCH))
    assert all(trial.run == 1 for trial in details.trials)
    assert details.num_trials >= 8
