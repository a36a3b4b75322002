"""Checkpoints behind a URL: found, fetched, given to others and removed as those in folders are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trek.client import models
from trek.control.checkpoint_files import find_checkpoints
from trek.errors import ConfigError, NotFound, StorageError
from trek.experiments.checkpoint_address import fetch_checkpoint, remove_checkpoint
from trek.experiments.config import ExperimentConfig
from trek.train.storage import RemoteStorage, open_storage

MakePlane = Callable[..., Any]
# Leaves a whole checkpoint nobody told of, at the place behind the URL.
SCRIPT = """
import pathlib
place = pathlib.Path(os.environ["PLACE"]) / f"experiment_1/trial_{os.environ['TREK_TRIAL_ID']}" / "c1"
place.mkdir(parents=True, exist_ok=True)
(place / "weights").write_bytes(b"123")
told = {"uuid": "c1", "batches": 100, "files": {"weights": {"bytes": 3}}, "metrics": {"error": 0.5}, "time_s": 1.0}
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
    found = plane.services.checkpoint("c1")
    assert (found.path, found.num_bytes) == (f"{url}/experiment_1/trial_1/c1", 3)
    assert (plane.services.checkpoint_folder("c1") / "weights").read_bytes() == b"123"
    plane.services.delete_checkpoint("c1")
    assert not (tmp_path / "bucket/experiment_1/trial_1/c1").exists()
    with pytest.raises(NotFound, match="were deleted"):
        plane.services.checkpoint_folder("c1")


def test_an_experiment_is_deleted_with_what_it_has_behind_a_url(
    make_plane: MakePlane, url: str, tmp_path: Path
) -> None:
    plane = make_plane(SCRIPT)
    number = _create(plane, url, tmp_path).id
    assert (tmp_path / "bucket/experiment_1/trial_1/c1").exists()
    plane.services.delete_experiment(number)
    assert not (tmp_path / "bucket/experiment_1/trial_1").exists()


def test_a_place_out_of_reach_is_told_and_nothing_counts_as_gone(caplog: pytest.LogCaptureFixture) -> None:
    assert find_checkpoints("nosuchstore://bucket/x") is None
    assert "nosuchstore://bucket/x cannot be looked at" in caplog.text
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
