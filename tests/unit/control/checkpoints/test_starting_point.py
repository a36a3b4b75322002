"""Trials that start from a checkpoint named in the config: every one of a search, also those made later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from trek.client import models
from trek.control.tables import MetricTable
from trek.errors import InputError, NotFound

MakePlane = Callable[..., Any]
SCRIPT = """
if os.environ["TREK_TRIAL_ID"] == "1":
    home = os.path.dirname(run_dir) + "/checkpoints/one"
    os.makedirs(home)
    made = {"uuid": "abc-1", "batches": 100, "metrics": {}, "time_s": 1.0, "files": {}, "owner": uuid}
    with open(home + "/manifest.json", "w") as file: json.dump(made, file)
else:
    while not os.path.exists(run_dir + '/go'): time.sleep(0.01)
outcome('done')
"""
SEARCH = {
    "name": "random",
    "metric": "error",
    "max_trials": 2,
    "max_concurrent_trials": 1,
    "max_length": {"batches": 101},
}


@pytest.mark.parametrize("source", [{"source_checkpoint_uuid": "abc-1"}, {"source_trial_id": 1}], ids=["uuid", "trial"])
def test_every_trial_of_a_search_starts_from_it(make_plane: MakePlane, source: dict[str, Any]) -> None:
    """Only the trials made at once used to start from the checkpoint of an experiment that was continued."""
    plane = make_plane(SCRIPT)
    plane.run_to_end(plane.create())
    second = plane.create(searcher={**SEARCH, **source})
    path = plane.services.checkpoints.get("abc-1").path
    for trial_id in (2, 3):
        plane.run_until(lambda trial_id=trial_id: _is_running(plane, trial_id))
        assert plane.services.trials.assignment(trial_id, run=1).resume == path
        with pytest.raises(InputError, match="starts from"):
            plane.services.experiments.delete(1)
        (plane.layout.run(plane.trial(trial_id)) / "go").touch()
        plane.run_until(lambda trial_id=trial_id: plane.services.trials.get(trial_id).state in models.ENDED)
    assert plane.run_to_end(second).config["start_from"] == "abc-1"
    plane.services.experiments.delete(1)


@pytest.mark.parametrize(
    ("start_from", "kind", "words"),
    [
        ("trial:9", NotFound, "trial 9 does not exist"),
        ("trial:1", InputError, "trial 1 has no checkpoint"),
        ("feed", NotFound, "checkpoint 'feed' does not exist"),
        ("/etc/passwd", InputError, "must be the uuid of a checkpoint, trial:ID or experiment:ID"),
    ],
)
def test_what_cannot_be_started_from_is_named(
    make_plane: MakePlane, start_from: str, kind: type[Exception], words: str
) -> None:
    plane = make_plane()
    plane.run_to_end(plane.create())
    with pytest.raises(kind, match=words):
        plane.create(start_from=start_from)


SHORT = [
    ({"batches": 100}, "100 batches, and searcher.max_length is 100 batches"),
    ({"batches": 8}, "100 batches, and searcher.max_length is 8 batches"),
    ({"epochs": 2}, "2.5 epochs, and searcher.max_length is 2 epochs"),
    ({"records": 800}, "800 records, and searcher.max_length is 800 records"),
]


@pytest.mark.parametrize(("length", "words"), SHORT)
def test_a_length_that_the_checkpoint_has_reached_is_refused(
    make_plane: MakePlane, length: dict[str, int], words: str
) -> None:
    """Every trial completed at once, with nothing trained and no metric."""
    plane = make_plane(SCRIPT)
    first = plane.create(hyperparameters={"global_batch_size": 8})
    plane.run_to_end(first)
    with plane.store.writing() as session:
        row = {"group": "validation", "batches": 100, "epoch": 2.5, "metrics": {}, "time_s": 1.0}
        session.add(MetricTable(trial_id=1, **row))
    words = f"checkpoint abc-1 is already at {words}. Increase searcher.max_length"
    changes = {"searcher.max_length": length}
    with pytest.raises(InputError, match=words):
        plane.services.experiments.fork(first, models.ForkExperiment(changes=changes, is_continued=True))
    [(unit, count)] = length.items()
    longer = models.ForkExperiment(changes={"searcher.max_length": {unit: count + 1}}, is_continued=True)
    if count > 8:
        assert plane.services.experiments.fork(first, longer).config["start_from"] == "abc-1"
    check = plane.services.experiments.check_fork(
        first, models.ForkExperiment(changes={**changes, "start_from": "abc-1"})
    )
    assert words in check.message


def _is_running(plane: Any, trial_id: int) -> bool:
    trials = plane.services.experiments.get(2).trials
    return any(trial.id == trial_id and trial.state == "running" for trial in trials)
