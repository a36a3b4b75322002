"""Checkpoints of experiments in S3: a real server on loopback, real trials, and the commands a user has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import trek
from trek.client.client import Client
from trek.client.embedded import running_address
from trek.testing.s3 import ACCOUNT, MISSING, s3
from trek.testing.shell import Shell

MODEL = Path(__file__).parent / "model"
SEARCHER = {"name": "single", "metric": "validation_error"}
BUCKET = "trek-checkpoints"
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """The URL of an S3 server with one empty bucket."""
    with s3(BUCKET) as url:
        yield url


@pytest.fixture
def shell(tmp_path: Path, endpoint: str) -> Iterator[Shell]:
    """A home whose processes know where S3 is."""
    made = Shell(tmp_path / "own-home", tmp_path, MODEL, variables={"AWS_ENDPOINT_URL": endpoint, **ACCOUNT})
    yield made
    made.clean_up()


def objects(endpoint: str, prefix: str) -> list[str]:
    """Keys in the bucket, as the server itself lists them."""
    listed = httpx.get(f"{endpoint}/{BUCKET}", params={"list-type": "2", "prefix": prefix}, trust_env=False)
    assert listed.status_code == 200
    return re.findall("<Key>(.*?)</Key>", listed.text)


def create(shell: Shell, *, prefix: str, **changes: Any) -> Any:
    done = shell.create(
        "--json",
        checkpoint_storage={"type": "s3", "bucket": BUCKET, "prefix": prefix, "save_trial_best": 0},
        min_checkpoint_period={"batches": 8},
        min_validation_period={"batches": 8},
        **changes,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_trial_saves_to_s3_and_goes_on_from_there(shell: Shell, endpoint: str) -> None:
    trial = create(shell, prefix="resumed", hyperparameters__deeds={"batch_60": "die_once"})["trials"][0]
    assert (trial["state"], trial["restarts"], trial["batches"]) == ("completed", 1, 100)
    reported = [row["batches"] for row in shell.json("trial", "metrics", str(trial["id"]), "--group", "validation")]
    assert reported == [*range(8, 100, 8), 100]
    (kept,) = shell.json("checkpoint", "list")
    assert (kept["uuid"], kept["batches"]) == (trial["checkpoint"], 100)
    place = kept["path"].removeprefix(f"s3://{BUCKET}/")
    assert place.startswith(f"resumed/experiment_1/trial_{trial['id']}-")
    assert {key.rpartition("/")[0] for key in objects(endpoint, "resumed/")} == {place}, "older ones were collected"
    assert "cannot be listed" not in (shell.home / "control.log").read_text(), "listings are not remembered"


def test_what_is_in_s3_is_listed_downloaded_loaded_and_deleted(shell: Shell, endpoint: str, tmp_path: Path) -> None:
    experiment = create(shell, prefix="kept", searcher={**SEARCHER, "max_length": {"batches": 16}})
    (kept,) = shell.json("checkpoint", "list")
    folder = tmp_path / "fetched"
    assert shell.run("checkpoint", "download", kept["uuid"][:8], "-o", str(folder)).returncode == 0
    assert {path.name for path in folder.iterdir()} == {key.rpartition("/")[2] for key in objects(endpoint, "kept/")}
    assert sorted(trek.Checkpoint(folder).state_dict()) == ["bias", "weight"]
    address = running_address(shell.home)
    assert address is not None
    with Client(address) as client:
        assert type(trek.Checkpoint(kept["uuid"][:8], client=client).load(trust_code=True)).__name__ == "Linear"
    assert shell.run("checkpoint", "delete", kept["uuid"], "--yes").returncode == 0
    assert objects(endpoint, "kept/") == []
    assert shell.json("checkpoint", "list") == []
    assert shell.run("experiment", "delete", str(experiment["id"]), "--yes").returncode == 0
    assert objects(endpoint, "kept/") == []
