"""Which checkpoints stay: the control plane alone decides, while trials run and when they have ended."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trek.client import models
from trek.client.models import CheckpointReport, Report
from trek.control.checkpoints.best_checkpoint import Candidate
from trek.control.checkpoints.retention import expired
from trek.experiments.config import CheckpointStorage

MakePlane = Callable[..., Any]
COUNTS = st.integers(0, 3)
CANDIDATES = st.lists(
    st.tuples(st.integers(1, 3), st.integers(0, 9), st.one_of(st.none(), st.floats(0, 1))), max_size=12
).map(lambda rows: [Candidate(f"c{i}", trial, batches, score) for i, (trial, batches, score) in enumerate(rows)])


@given(CANDIDATES, COUNTS, COUNTS, COUNTS, st.booleans())
def test_the_policy_keeps_what_it_promises(
    candidates: list[Candidate], experiment_best: int, trial_best: int, latest: int, has_ended: bool
) -> None:
    storage = CheckpointStorage(
        save_experiment_best=experiment_best, save_trial_best=trial_best, save_trial_latest=latest, save_trial_every=4
    )
    gone = expired(candidates, storage, has_ended=has_ended)
    kept = [c for c in candidates if c.uuid not in gone]
    scores = sorted(c.score for c in candidates if c.score is not None)
    assert sorted(c.score for c in kept if c.score is not None)[:experiment_best] == scores[:experiment_best]
    assert not any(c.batches % 4 == 0 for c in candidates if c.uuid in gone)
    for trial in {c.trial_id for c in candidates}:
        own, left = [c for c in candidates if c.trial_id == trial], [c for c in kept if c.trial_id == trial]
        best = sorted(c.score for c in own if c.score is not None)[:trial_best]
        assert sorted(c.score for c in left if c.score is not None)[:trial_best] == best
        count = latest if has_ended else max(latest, 1)
        assert sorted(c.batches for c in left)[::-1][:count] == sorted(c.batches for c in own)[::-1][:count]


class Saving:
    """A plane with running trials, for which checkpoints are saved and reported."""

    def __init__(self, plane: Any) -> None:
        self.plane = plane

    def save(self, uuid: str, *, error: float | None, batches: int, trial: int = 1) -> Path:
        folder: Path = self.plane.layout.trial(self.plane.trial(trial)) / "checkpoints" / uuid
        folder.mkdir(parents=True)
        (folder / "manifest.json").write_text("{}")
        found = CheckpointReport(
            uuid=uuid, batches=batches, path=str(folder), num_bytes=1, time_s=float(batches), metrics={"error": error}
        )
        self.plane.services.trials.report(trial, Report(run=1, checkpoints=[found]))
        self.plane.supervisor.tick()
        return folder

    @property
    def left(self) -> set[str]:
        rows = {one.uuid for one in self.plane.services.checkpoints.all()}
        files = {path.parent.name for path in (self.plane.layout.home / "trials").rglob("manifest.json")}
        assert files == rows
        return rows


@pytest.fixture
def start(make_plane: MakePlane) -> Callable[..., Saving]:
    """Starts an experiment with two trials that run until they are killed."""

    def make(**storage: int) -> Saving:
        plane = make_plane("time.sleep(600)")
        searcher = {"name": "grid", "metric": "error", "max_length": {"batches": 100}}
        space = {"lr": {"type": "categorical", "vals": [1, 2]}}
        plane.create(searcher=searcher, hyperparameters=space, checkpoint_storage=storage)
        plane.run_until(lambda: len(plane.supervisor.running) == 2)
        return Saving(plane)

    return make


def test_the_best_of_the_experiment_are_kept_while_it_runs(start: Callable[..., Saving]) -> None:
    """Running trials pruned by their own policy and deleted what save_experiment_best promised to keep."""
    saving = start(save_experiment_best=2, save_trial_best=0, save_trial_latest=0)
    for batches, first, second in ((10, 0.9, 0.9), (20, 0.8, 0.2), (30, 0.6, 0.3), (40, 0.5, 0.35), (50, 0.4, 0.36)):
        saving.save(f"a{batches}", error=first, batches=batches, trial=1)
        saving.save(f"b{batches}", error=second, batches=batches, trial=2)
    assert saving.left == {"b20", "b30", "a50", "b50"}, "the two best, and what each trial resumes from"


def test_the_best_stays_when_a_metric_becomes_infinite(start: Callable[..., Saving]) -> None:
    """After a metric of -inf the trial deleted its really best checkpoint."""
    saving = start()
    saving.save("good", error=0.4, batches=10)
    saving.save("diverged", error=None, batches=20)  # reports have no infinite numbers
    saving.save("last", error=0.6, batches=30)
    assert saving.left == {"good", "last"}


def test_a_registered_checkpoint_of_a_running_trial_stays(start: Callable[..., Saving]) -> None:
    """A checkpoint registered as a model version was deleted by its trial at the next save."""
    saving = start(save_trial_best=0)
    saving.save("registered", error=0.9, batches=10)
    saving.plane.services.models.create(models.CreateModel(name="net"), owner="ann")
    saving.plane.services.models.register("net", models.RegisterVersion(checkpoint="registered"))
    saving.save("next", error=0.8, batches=20)
    saving.save("last", error=0.7, batches=30)
    assert saving.left == {"registered", "last"}


def test_a_checkpoint_that_another_experiment_continues_from_stays(start: Callable[..., Saving]) -> None:
    """The checkpoint that a queued experiment was to start from was deleted before it started."""
    saving = start(save_trial_best=0)
    folder = saving.save("start", error=0.1, batches=10)
    saving.plane.services.experiments.fork(1, models.ForkExperiment(is_continued=True))
    saving.save("last", error=0.7, batches=20)
    assert "start" in saving.left
    assert folder.is_dir()


def test_files_of_a_store_that_is_away_are_removed_later(
    start: Callable[..., Saving], monkeypatch: pytest.MonkeyPatch
) -> None:
    saving = start(save_trial_best=0)
    from trek.errors import StorageError

    def fail(address: str) -> None:
        raise StorageError(f"{address} is away.")

    with monkeypatch.context() as patch:
        patch.setattr("trek.control.checkpoints.trial_storage.remove_checkpoint", fail)
        old = saving.save("old", error=0.1, batches=10)
        saving.save("new", error=0.2, batches=20)
    assert old.is_dir()
    assert [one.uuid for one in saving.plane.services.checkpoints.all()] == ["new"]
    saving.plane.supervisor._pending_removals._not_before.clear()
    saving.plane.supervisor.tick()
    assert saving.left == {"new"}
