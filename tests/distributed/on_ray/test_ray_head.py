"""The head of a cluster killed and started again: what was stored is kept, and trials go on from their checkpoints."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from trek.engines.free_port import find_free_port
from trek.testing.ray_cluster import RayHead
from trek.testing.shell import Shell, wait_until

MODEL = Path(__file__).parents[2] / "e2e" / "model"


@pytest.fixture
def head() -> Iterator[RayHead]:
    made = RayHead(port=find_free_port(), cpus=2)
    made.start()
    yield made
    made.kill()


@pytest.fixture
def shell(head: RayHead, tmp_path: Path) -> Iterator[Shell]:
    # Ray's minute of patience with a head that does not answer is shortened.
    variables = {"TREK_ENGINE": "ray", "RAY_ADDRESS": head.address, "RAY_gcs_rpc_server_reconnect_timeout_s": "5"}
    variables["RAY_AUTH_MODE"] = "disabled"  # a user may have a token of Ray's
    made = Shell(tmp_path / "own-home", tmp_path, MODEL, {**variables, "TREK_SLOTS": ""})
    yield made
    made.clean_up()


@pytest.mark.campaign
def test_a_trial_goes_on_from_its_checkpoint_after_the_head_was_killed_and_is_back(head: RayHead, shell: Shell) -> None:
    done = shell.create(
        "--no-follow", "--json",
        hyperparameters={"learning_rate": 0.05, "global_batch_size": 32, "first_run_sleep_s": 0.2},
        searcher={"name": "single", "metric": "validation_error", "max_length": {"batches": 64}},
        min_validation_period={"batches": 8}, min_checkpoint_period={"batches": 8},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    experiment = str(json.loads(done.stdout)["id"])
    wait_until(lambda: shell.experiment(experiment)["trials"][0]["batches"] > 8)
    old = shell.control_plane()
    head.kill_control_process()
    old.wait(timeout=240)
    assert "Failed to connect to GCS" in (shell.home / "control.log").read_text()
    head.kill()
    head.start()
    wait_until(lambda: shell.experiment(experiment)["state"] == "completed")
    trial = shell.experiment(experiment)["trials"][0]
    assert (trial["state"], trial["batches"], trial["restarts"]) == ("completed", 64, 1)
    reports = shell.json("trial", "metrics", str(trial["id"]), "--group", "validation")
    assert [point["batches"] for point in reports] == [*range(8, 65, 8)]
