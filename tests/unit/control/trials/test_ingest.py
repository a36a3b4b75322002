"""What trials report: every row once, the best remembered, runs that were replaced not listened to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from trek.client.models import CheckpointReport, MetricPoint, Report

MakePlane = Callable[..., Any]


def point(batches: int, error: float | None, *, group: str = "validation") -> MetricPoint:
    return MetricPoint(group=group, batches=batches, metrics={"error": error}, time_s=float(batches))


def checkpoint(plane: Any, uuid: str, batches: int) -> CheckpointReport:
    path = f"{plane.layout.trial(plane.trial())}/checkpoints/{uuid}"
    return CheckpointReport(uuid=uuid, batches=batches, path=path, num_bytes=1, time_s=float(batches))


@pytest.fixture
def plane(make_plane: MakePlane) -> Any:
    """A plane with trial 1 running."""
    made = make_plane("time.sleep(600)")
    made.create()
    made.run_until(lambda: made.supervisor.running)
    return made


def test_a_row_reported_twice_counts_once(plane: Any) -> None:
    for _ in range(2):
        plane.services.trials.report(1, Report(run=1, metrics=[point(10, 0.5), point(10, 0.7, group="training")]))
    assert plane.services.trials.metrics(1) == [point(10, 0.7, group="training"), point(10, 0.5)]


def test_a_row_reported_again_replaces_itself(plane: Any) -> None:
    plane.services.trials.report(1, Report(run=1, metrics=[point(10, 0.5)]))
    plane.services.trials.report(1, Report(run=1, metrics=[point(10, 0.4)]))
    assert plane.services.trials.metrics(1) == [point(10, 0.4)]


def test_the_best_is_remembered_and_what_is_no_number_is_not(plane: Any) -> None:
    plane.services.trials.report(
        1, Report(run=1, metrics=[point(10, 0.5), point(20, 0.3), point(30, None), point(40, 0.4)])
    )
    experiment = plane.services.experiments.get(1)
    assert (experiment.best_metric, experiment.best_trial) == (0.3, 1)
    assert experiment.trials[0].latest_metrics == {"error": 0.4}


def test_progress_of_the_experiment_follows_its_trials(plane: Any) -> None:
    plane.services.trials.report(1, Report(run=1, progress=0.25))
    assert plane.services.experiments.get(1).progress == 0.25


def test_the_newest_checkpoint_that_is_there_is_the_trials(plane: Any) -> None:
    found = [checkpoint(plane, "b", 20), checkpoint(plane, "a", 10)]
    plane.services.trials.report(1, Report(run=1, checkpoints=found))
    assert plane.services.trials.get(1).checkpoint == "b"
    assert [one.uuid for one in plane.services.checkpoints.all(trial_id=1)] == ["b"], "the policy keeps one"


def test_a_run_that_was_replaced_is_told_to_stop_and_not_listened_to(plane: Any) -> None:
    reply = plane.services.trials.report(1, Report(run=7, metrics=[point(10, 0.1)]))
    assert reply.stop == "killed"
    assert plane.services.trials.metrics(1) == []


def test_a_trial_learns_that_it_shall_be_killed(plane: Any) -> None:
    assert plane.services.trials.report(1, Report(run=1)).stop == ""
    plane.services.experiments.kill(1)
    assert plane.services.trials.report(1, Report(run=1)).stop == "killed"
