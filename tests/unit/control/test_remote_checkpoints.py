"""Checkpoints behind a URL: found, fetched, given to others and removed as those in folders are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trek.client import models
from trek.control.checkpoints.checkpoint_files import find_checkpoints, remove_unfinished
from trek.control.checkpoints.trial_storage import TrialStorage
from trek.control.tables import CheckpointTable, TrialRow
from trek.control.trials.start_checkpoints import RETRY_S
from trek.errors import ConfigError, NotFound, StorageError
from trek.experiments.checkpoint_address import fetch_checkpoint, remove_checkpoint
from trek.experiments.config import ExperimentConfig
from trek.testing.clock import FakeClock
from trek.train.checkpointing.stores import open_storage
from trek.train.checkpointing.stores.remote import RemoteStorage

MakePlane = Callable[..., Any]
# Leaves a whole checkpoint nobody told of, at the place behind the URL.
SCRIPT = """
import pathlib
place = pathlib.Path(os.environ["PLACE"]) / f"experiment_1/trial_{os.path.basename(os.path.dirname(run_dir))}" / "c1"
place.mkdir(parents=True, exist_ok=True)
(place / "weights").write_bytes(b"123")
told = {"uuid": "c1", "batches": 100, "files": {"weights": {"bytes": 3}}, "metrics": {"error": 0.5}, "time_s": 1.0}
told["owner"] = uuid
(place / "manifest.json").write_text(json.dumps(told))
outcome("done")
"""


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A place reached through fsspec, of which both the trial and we can see the files."""
    return f"local://{tmp_path}/bucket"


def _create(plane: Any, url: str, tmp_path: Path) -> models.ExperimentDetails:
    variables = {"environment_variables": {"PLACE": str(tmp_path / "bucket")}}
    details: models.ExperimentDetails = plane.run_to_end(
        plane.create(checkpoint_storage={"url": url}, environment=variables)
    )
    return details


def test_a_checkpoint_behind_a_url_is_found_fetched_and_deleted(
    make_plane: MakePlane, url: str, tmp_path: Path
) -> None:
    assert isinstance(open_storage(url), RemoteStorage)
    plane = make_plane(SCRIPT)
    assert _create(plane, url, tmp_path).trials[0].checkpoint == "c1"
    found = plane.services.checkpoints.get("c1")
    assert (found.path, found.num_bytes) == (f"{url}/experiment_1/trial_{plane.trial().folder_name}/c1", 3)
    with plane.services.checkpoints.folder("c1") as folder:
        assert (folder.path / "weights").read_bytes() == b"123"
    assert not folder.path.parent.exists(), "a copy is removed once it was read"
    plane.services.checkpoints.delete("c1")
    assert not (tmp_path / f"bucket/experiment_1/trial_{plane.trial().folder_name}/c1").exists()
    with pytest.raises(NotFound, match="were deleted"), plane.services.checkpoints.folder("c1"):
        pass


@pytest.mark.parametrize("is_remote", [True, False])
def test_what_a_killed_run_left_half_written_is_removed(
    make_plane: MakePlane, url: str, tmp_path: Path, is_remote: bool
) -> None:
    torn = "place.with_name('c2').mkdir()" if is_remote else "place.with_name('.writing-c2').mkdir()"
    plane = make_plane(SCRIPT.replace('outcome("done")', f"{torn}; os.kill(os.getpid(), 9)"))
    variables = {"environment_variables": {"PLACE": str(tmp_path / "bucket")}}
    storage = {"url": url} if is_remote else {"path": f"{tmp_path}/bucket"}
    number = plane.create(checkpoint_storage=storage, environment=variables, max_restarts=0)
    assert plane.run_to_end(number).trials[0].state == "errored"
    folder = tmp_path / f"bucket/experiment_1/trial_{plane.trial().folder_name}"
    assert [path.name for path in folder.iterdir()] == ["c1"]


def test_a_store_that_cannot_be_cleaned_up_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    remove_unfinished(TrialStorage(root="nosuchstore://bucket", inner="x"))
    assert "what was left half written at nosuchstore://bucket/x cannot be removed" in caplog.text


def test_an_experiment_is_deleted_with_what_it_has_behind_a_url(
    make_plane: MakePlane, url: str, tmp_path: Path
) -> None:
    plane = make_plane(SCRIPT)
    number = _create(plane, url, tmp_path).id
    folder = tmp_path / f"bucket/experiment_1/trial_{plane.trial().folder_name}"
    assert (folder / "c1").exists()
    plane.services.experiments.delete(number)
    assert not folder.exists()


def test_a_place_out_of_reach_is_told_and_nothing_counts_as_gone(caplog: pytest.LogCaptureFixture) -> None:
    assert find_checkpoints(TrialStorage(root="nosuchstore://bucket", inner="x"), owner="") is None
    assert "nosuchstore://bucket/x cannot be listed" in caplog.text
    with pytest.raises(StorageError, match="cannot be fetched"):
        fetch_checkpoint("nosuchstore://bucket/x/c1")
    with pytest.raises(StorageError, match="cannot be removed"):
        remove_checkpoint("nosuchstore://bucket/x/c1")


@pytest.mark.parametrize(
    ("written", "url"),
    [
        ({"type": "s3", "bucket": "b", "prefix": "runs/"}, "s3://b/runs"),
        ({"type": "gcs", "bucket": "b"}, "gs://b"),
        ({"type": "azure", "container": "c"}, "abfs://c"),
        ({"url": "s3://b/x"}, "s3://b/x"),
    ],
)
def test_the_clouds_spellings_become_one_url(written: dict[str, Any], url: str) -> None:
    raw = {"entrypoint": "m:T", "searcher": {"name": "single", "metric": "e", "max_length": 1}}
    storage = ExperimentConfig.parse({**raw, "checkpoint_storage": written}).checkpoint_storage
    assert (storage.type, storage.url) == ("url", url)
    with pytest.raises(ConfigError, match="needs a 'url'"):
        ExperimentConfig.parse({**raw, "checkpoint_storage": {"type": written.get("type", "url")}})


def _with_a_child(plane: Any, path: str) -> None:
    """Trial 2 is to start from the checkpoint of trial 1, which is at `path`."""
    plane.create()
    made = {"uuid": "c1", "batches": 1, "num_bytes": 3, "time_s": 1.0}
    with plane.store.writing() as session:
        session.add(CheckpointTable(trial_id=1, path=path, **made))
        parent = session.get_one(TrialRow, 1)
        parent.checkpoint, parent.state = "c1", "completed"
        child = {"key": parent.key + 1, "parent_key": parent.key, "hparams": {}, "seed": 0, "length": 1}
        session.add(TrialRow(experiment_id=1, created_s=1.0, **child))


def test_a_trial_gets_a_copy_of_what_it_starts_from_outside_of_transactions(
    make_plane: MakePlane, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plane = make_plane()
    source = tmp_path / "bucket" / "c1"
    source.mkdir(parents=True)
    (source / "weights").write_bytes(b"123")
    _with_a_child(plane, f"{url}/c1")

    def fetch(address: str, *, into: Path | None = None) -> Path:
        with plane.store._write_lock:
            is_writing = plane.store._write_lock._recursion_count() > 1
        assert not is_writing
        return fetch_checkpoint(address, into=into)

    monkeypatch.setattr("trek.control.trials.start_checkpoints.fetch_checkpoint", fetch)
    plane.run_until(lambda: plane.services.trials.get(2).run == 1)
    start = plane.layout.trial(plane.trial(2)) / "start"
    assert (start / "weights").read_bytes() == b"123"
    with plane.store.reading() as session:
        assert session.get_one(TrialRow, 2).start_checkpoint == str(start)


def test_a_trial_whose_start_cannot_be_fetched_waits_and_says_why(make_plane: MakePlane) -> None:
    plane = make_plane()
    _with_a_child(plane, "nosuchstore://bucket/c1")
    for _ in range(3):
        plane.supervisor.tick()
    waiting = plane.services.trials.get(2)
    assert (waiting.state, waiting.run) == ("queued", 0)
    assert "cannot be copied: the checkpoint at nosuchstore://bucket/c1" in waiting.waiting


def test_a_copy_that_failed_is_tried_again_after_a_while(make_plane: MakePlane, tmp_path: Path) -> None:
    clock = FakeClock()
    plane = make_plane(clock=clock)
    source = tmp_path / "bucket" / "c1"
    _with_a_child(plane, str(source))
    plane.supervisor.tick()
    assert "cannot be copied" in plane.services.trials.get(2).waiting
    source.mkdir(parents=True)
    clock.advance(RETRY_S - 1)
    plane.supervisor.tick()
    assert plane.services.trials.get(2).run == 0
    clock.advance(1)
    plane.run_until(lambda: plane.services.trials.get(2).run == 1)
