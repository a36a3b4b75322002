"""Two databases on one storage or one home: their trials never meet."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trek.control.checkpoints.checkpoint_files import find_checkpoints
from trek.control.checkpoints.trial_storage import TrialStorage
from trek.control.tables import TrialRow
from trek.train.checkpointing.checkpoint_folder import find_latest
from trek.train.checkpointing.stores import open_storage

MakePlane = Callable[..., Any]


def test_trials_with_the_same_id_have_their_own_folders(make_plane: MakePlane, tmp_path: Path) -> None:
    """A home used with a second database gave its trial 1 the checkpoints of the first one's."""
    shared = {"path": str(tmp_path / "shared")}
    first, second = make_plane("time.sleep(600)"), make_plane("time.sleep(600)", url=f"sqlite:///{tmp_path}/other.db")
    places = []
    for plane in (first, second):
        plane.create()
        plane.create(checkpoint_storage=shared)
        plane.run_until(lambda plane=plane: len(plane.supervisor.running) == 2)
        places += [plane.services.trials.assignment(trial, run=1).checkpoint_dir for trial in (1, 2)]
        places += [str(plane.layout.run(plane.trial(trial))) for trial in (1, 2)]
    assert len(set(places)) == len(places) == 8
    assert sum(place.startswith(shared["path"]) for place in places) == 2


def test_a_trial_of_an_earlier_release_keeps_its_folders(make_plane: MakePlane, tmp_path: Path) -> None:
    plane = make_plane("time.sleep(600)")
    plane.create()
    plane.create(checkpoint_storage={"path": str(tmp_path / "shared")})
    with plane.store.writing() as session:
        for number in (1, 2):
            session.get_one(TrialRow, number).uuid = ""
    plane.run_until(lambda: len(plane.supervisor.running) == 2)
    found = [plane.services.trials.assignment(trial, run=1) for trial in (1, 2)]
    assert [one.checkpoint_dir for one in found] == [
        f"{plane.layout.home}/trials/1/checkpoints",
        f"{tmp_path}/shared/experiment_2/trial_2",
    ]
    assert [one.owner for one in found] == ["", ""]


@pytest.mark.parametrize(("owner", "is_found"), [("me", True), ("another", False), ("", False)])
def test_a_checkpoint_of_another_trial_is_not_adopted(owner: str, is_found: bool, tmp_path: Path) -> None:
    """A trial "completed" at once with the weights that the trial of another home had left at its place."""
    (tmp_path / "c1").mkdir()
    made = {"format": 1, "uuid": "c1", "owner": owner, "batches": 1, "metrics": {}, "time_s": 1.0, "files": {}}
    (tmp_path / "c1" / "manifest.json").write_text(json.dumps({**made, "world_size": 0, "score": None}))
    found = find_checkpoints(TrialStorage(root=str(tmp_path.parent), inner=tmp_path.name), owner="me")
    assert (found is not None and "c1" in found) == is_found
    if not is_found:
        assert find_latest(open_storage(tmp_path), owner="me") is None
