"""Errors from outside: trials pause before they are started again, and a search that gets nowhere ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from trek.client import models
from trek.control.tables import TrialRow
from trek.control.trials.endings import MAX_PAUSE_S, Ending, pause_after
from trek.control.trials.failing_search import NUM_ALIKE

MakePlane = Callable[..., Any]
SEARCH = {"name": "random", "metric": "error", "max_length": {"batches": 100}, "max_trials": 8}
REPORT = models.Report(
    run=1, metrics=[models.MetricPoint(group="training", batches=1, metrics={"loss": 0.5}, time_s=1.0)]
).model_dump_json()


def end_pauses(plane: Any) -> None:
    """As if the time had come."""
    with plane.store.writing() as session:
        for trial in session.query(TrialRow).where(TrialRow.not_before_s > time.time()):
            trial.not_before_s = 0.0


def run_without_pauses(plane: Any, number: int) -> models.ExperimentDetails:
    """Move on until the experiment has ended, and let nobody wait for it."""

    def has_ended() -> bool:
        end_pauses(plane)
        return plane.services.experiment(number).state in models.ENDED

    plane.run_until(has_ended)
    return plane.services.experiment(number)


def test_pauses_grow_up_to_a_bound_and_only_the_outside_needs_them() -> None:
    pauses = [pause_after(Ending("outside"), restarts=restarts) for restarts in range(40)]
    assert pauses[:4] == [2, 4, 8, 16]
    assert pauses == sorted(pauses)
    assert pauses[-1] == MAX_PAUSE_S
    assert pause_after(Ending("lost"), restarts=3) == 0


def test_an_error_from_outside_is_tried_again_after_a_pause_that_the_next_supervisor_keeps(
    make_plane: MakePlane,
) -> None:
    plane = make_plane("outcome('outside', 'no network') if run == 1 else outcome('done')")
    number = plane.create()
    plane.run_until(lambda: plane.services.experiment(number).trials[0].restarts == 1)
    with plane.store.writing() as session:
        session.get_one(TrialRow, 1).not_before_s = time.time() + 3600
    after = make_plane("outcome('done')")
    after.supervisor._find_gangs()
    for _ in range(3):
        after.supervisor.tick()
    trial = after.services.experiment(number).trials[0]
    assert (trial.state, trial.run) == ("queued", 1)
    assert trial.waiting == "pauses 2 s before restart 1 of 5: no network"
    end_pauses(after)
    assert after.run_to_end(number).state == "completed"


def test_activating_an_experiment_ends_its_pauses(make_plane: MakePlane) -> None:
    plane = make_plane("outcome('outside', 'no network') if run == 1 else outcome('done')")
    number = plane.create()
    plane.run_until(lambda: plane.services.experiment(number).trials[0].restarts == 1)
    with plane.store.writing() as session:
        session.get_one(TrialRow, 1).not_before_s = time.time() + 3600
    plane.services.pause_experiment(number)
    plane.services.activate_experiment(number)
    assert plane.run_to_end(number).state == "completed"


@pytest.mark.parametrize("kind", ["outside", "user", "input"])
def test_a_search_whose_first_trials_all_fail_alike_ends_with_their_error(make_plane: MakePlane, kind: str) -> None:
    plane = make_plane(f"outcome({kind!r}, 'it is gone')")
    details = run_without_pauses(plane, plane.create(searcher=SEARCH, max_restarts=2))
    assert (details.state, details.error, details.failure) == ("errored", "it is gone", kind)
    started = [trial for trial in details.trials if trial.run > 0]
    assert NUM_ALIKE <= len(started) <= NUM_ALIKE + 1  # with two slots one more may run by then
    assert {trial.state for trial in details.trials if trial.run == 0} == {"killed"}


def test_trials_that_were_never_started_say_why_they_are_held_back(make_plane: MakePlane) -> None:
    plane = make_plane("outcome('outside', 'no network')")
    number = plane.create(searcher=SEARCH)
    plane.run_until(lambda: sum(trial.restarts for trial in plane.services.experiment(number).trials) >= NUM_ALIKE)
    plane.run_until(lambda: not plane.supervisor.running)
    last = plane.services.experiment(number).trials[-1]
    assert last.waiting == "waits for the trials before it, which all failed: no network"
    plane.services.kill_experiment(number)


def test_a_search_goes_on_when_what_was_gone_is_back(make_plane: MakePlane) -> None:
    plane = make_plane("outcome('outside', 'no network') if run == 1 else outcome('done')")
    details = run_without_pauses(plane, plane.create(searcher=SEARCH))
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
