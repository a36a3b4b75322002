"""Which checkpoint is an experiment's best: one answer for every caller."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from sqlalchemy import select

from trek.client import models
from trek.control.checkpoints.best_checkpoint import Candidate, choose_best
from trek.control.checkpoints.retention import expire_checkpoints
from trek.control.tables import CheckpointTable, ExperimentRow, TrialRow
from trek.errors import NotFound
from trek.testing.clock import FakeClock

MakePlane = Callable[..., Any]
SEARCH = {"name": "random", "metric": "error", "max_trials": 2, "max_length": {"batches": 100}}


def candidate(uuid: str, score: float | None, *, trial: int = 1, batches: int = 10) -> Candidate:
    return Candidate(uuid, trial, batches, score, time_s=float(batches))


@pytest.mark.parametrize(
    ("candidates", "best"),
    [
        ([candidate("a", 0.5), candidate("b", 0.1), candidate("c", 0.3)], ("b", "best_metric")),
        ([candidate("a", 0.5), candidate("b", 0.1, trial=2)], ("b", "best_metric")),
        ([candidate("a", 0.1, batches=30), candidate("b", 0.1, batches=20)], ("b", "best_metric")),
        ([candidate("a", None, batches=90), candidate("b", 9.0)], ("b", "best_metric")),
        ([candidate("a", None), candidate("b", None, batches=20)], ("b", "newest_of_best_trial")),
        ([candidate("a", None), candidate("b", None, trial=2, batches=99)], ("a", "newest_of_best_trial")),
        ([candidate("a", None, trial=2), candidate("b", None, trial=3, batches=20)], ("b", "newest")),
        ([], None),
    ],
    ids=["value", "any trial", "tie", "unmeasured", "newest", "best trial first", "no best trial", "none"],
)
def test_what_is_best(candidates: Sequence[Candidate], best: tuple[str, str] | None) -> None:
    assert choose_best(candidates, best_trial=1) == best
    assert choose_best(list(reversed(candidates)), best_trial=1) == best


def add(
    plane: Any, uuid: str, value: float | None, *, trial: int = 1, batches: int = 10, metric: str = "error"
) -> None:
    """Store the row of a checkpoint; `value` None is one that was not validated."""
    metrics = {} if value is None else {metric: value}
    made = {"batches": batches, "path": f"/nowhere/{uuid}", "num_bytes": 1, "time_s": float(batches)}
    with plane.store.writing() as session:
        session.add(CheckpointTable(uuid=uuid, trial_id=trial, metrics=metrics, **made))


def best(plane: Any, number: int) -> tuple[str, str]:
    found = plane.services.checkpoints.best(number)
    return found.uuid, found.reason


def test_the_best_is_not_the_last(make_plane: MakePlane) -> None:
    plane = make_plane()
    number = plane.create()
    for batches, value in ((10, 0.5), (20, 0.1), (30, 0.4)):
        add(plane, f"c{batches}", value, batches=batches)
    assert best(plane, number) == ("c20", "best_metric")


def test_a_larger_metric_may_be_better(make_plane: MakePlane) -> None:
    plane = make_plane()
    searcher = {"name": "single", "metric": "error", "max_length": 100, "smaller_is_better": False}
    number = plane.create(searcher=searcher)
    for batches, value in ((10, 0.5), (20, 0.9), (30, 0.4)):
        add(plane, f"c{batches}", value, batches=batches)
    assert best(plane, number) == ("c20", "best_metric")


def test_the_best_accuracy_is_the_largest(make_plane: MakePlane) -> None:
    plane = make_plane()
    number = plane.create(searcher={"name": "single", "metric": "accuracy", "max_length": 100})
    for batches, value in ((10, 0.5), (20, 0.9), (30, 0.4)):
        add(plane, f"c{batches}", value, batches=batches, metric="accuracy")
    assert best(plane, number) == ("c20", "best_metric")
    details = plane.services.experiments.get(number)
    assert details.config["searcher"]["smaller_is_better"] is details.smaller_is_better is False
    assert details.warnings == [
        "the largest accuracy is best by its name. Set searcher.smaller_is_better to choose.",
    ]


@pytest.mark.parametrize("changes", [{"searcher.metric": "accuracy"}, {"searcher": {**SEARCH, "metric": "accuracy"}}])
def test_a_fork_with_another_metric_has_the_direction_of_that_metric(
    make_plane: MakePlane, changes: dict[str, Any]
) -> None:
    plane = make_plane()
    number = plane.create()
    forked = plane.services.experiments.fork(number, models.ForkExperiment(changes=changes))
    assert (plane.services.experiments.get(number).smaller_is_better, forked.smaller_is_better) == (True, False)


@pytest.mark.parametrize("smaller_is_better", [True, False])
def test_a_metric_that_is_not_finite_never_wins(make_plane: MakePlane, smaller_is_better: bool) -> None:
    plane = make_plane()
    searcher = {"name": "single", "metric": "error", "max_length": 100, "smaller_is_better": smaller_is_better}
    number = plane.create(searcher=searcher)
    for batches, value in enumerate((math.inf, -math.inf, math.nan)):
        add(plane, f"c{batches}", value, batches=batches)
    assert best(plane, number)[1] == "newest"
    add(plane, "finite", 1e30 if smaller_is_better else -1e30, batches=1)
    assert best(plane, number) == ("finite", "best_metric")


def test_what_the_keep_policy_removed_cannot_be_best(make_plane: MakePlane) -> None:
    plane = make_plane()
    storage = {"save_experiment_best": 0, "save_trial_best": 0, "save_trial_latest": 1}
    number = plane.create(searcher=SEARCH, checkpoint_storage=storage)
    add(plane, "best-of-best", 0.1, trial=1, batches=10)
    add(plane, "last-of-best", 0.6, trial=1, batches=20)
    add(plane, "other", 0.3, trial=2, batches=20)
    assert best(plane, number) == ("best-of-best", "best_metric")
    with plane.store.writing() as session:
        experiment = session.get_one(ExperimentRow, number)
        experiment.best_trial = 1
        expire_checkpoints(session, experiment)
    assert best(plane, number) == ("other", "best_metric")


def test_the_keep_policy_does_not_keep_what_diverged_as_best(make_plane: MakePlane) -> None:
    plane = make_plane()
    storage = {"save_experiment_best": 0, "save_trial_best": 1, "save_trial_latest": 0}
    number = plane.create(checkpoint_storage=storage)
    add(plane, "diverged", -math.inf, batches=10)
    add(plane, "good", 0.1, batches=20)
    with plane.store.writing() as session:
        expire_checkpoints(session, session.get_one(ExperimentRow, number))
        kept = session.scalars(select(CheckpointTable.uuid).where(~CheckpointTable.is_deleted)).all()
    assert kept == ["good"]


def test_an_experiment_without_checkpoints_has_no_best(make_plane: MakePlane) -> None:
    plane = make_plane()
    number = plane.create()
    with pytest.raises(NotFound, match="has no checkpoint"):
        plane.services.checkpoints.best(number)
    with pytest.raises(NotFound, match="experiment 99 does not exist"):
        plane.services.checkpoints.best(99)


def test_continuing_starts_from_the_best_checkpoint(make_plane: MakePlane) -> None:
    plane = make_plane()
    number = plane.create()
    add(plane, "best", 0.1, batches=10)
    add(plane, "newest", 0.2, batches=20)
    made = plane.services.experiments.fork(number, models.ForkExperiment(is_continued=True))
    with plane.store.reading() as session:
        start = session.scalars(select(TrialRow.start_checkpoint).where(TrialRow.experiment_id == made.id)).all()
    assert start == ["/nowhere/best"]


def test_a_validation_that_is_not_finite_is_no_trials_best(make_plane: MakePlane) -> None:
    plane = make_plane("time.sleep(600)", clock=FakeClock())
    plane.create()
    plane.run_until(lambda: plane.supervisor.running)
    for batches, value in ((10, 0.5), (20, None), (30, None)):  # None stands for infinity and NaN
        point = models.MetricPoint(group="validation", batches=batches, metrics={"error": value}, time_s=1.0)
        plane.services.trials.report(1, models.Report(run=1, metrics=[point]))
    assert plane.services.experiments.get(1).best_metric == 0.5
