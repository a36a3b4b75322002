"""A cluster with a real autoscaler: it adds nodes for what waits in the queue, and ends them when they are idle."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'trek-ml[ray]'")

from trek.testing.ray_autoscaling import autoscaling_head
from trek.testing.ray_cluster import RayHead
from trek.testing.shell import Shell, wait_until

MODEL = Path(__file__).parents[2] / "e2e" / "model"
SPACE = {"learning_rate": {"type": "log", "minval": -3, "maxval": -1}, "global_batch_size": 32, "sleep_s": 0.1}


@pytest.fixture(params=[False, True], ids=["v1", "v2"])
def head(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RayHead]:
    """One CPU, and up to two nodes with two CPUs each beside it."""
    is_v2 = bool(request.param)
    made = autoscaling_head(tmp_path, cpus=1, worker={"CPU": 2}, max_workers=2, idle_s=5, is_v2=is_v2)
    made.start()
    yield made
    made.kill()


@pytest.fixture
def shell(head: RayHead, tmp_path: Path) -> Iterator[Shell]:
    variables = {"TREK_ENGINE": "ray", "RAY_ADDRESS": head.address, "RAY_AUTH_MODE": "disabled", "TREK_SLOTS": ""}
    made = Shell(tmp_path / "own-home", tmp_path, MODEL, variables)
    yield made
    made.clean_up()


def _create(shell: Shell, **changes: Any) -> str:
    done = shell.create("--no-follow", "--json", hyperparameters=SPACE, **changes)
    assert done.returncode == 0, done.stderr
    return str(json.loads(done.stdout)["id"])


def _slots(shell: Shell) -> list[int]:
    return sorted(node["slots"] for node in shell.json("cluster", "info")["nodes"])


@pytest.mark.campaign
def test_a_queue_gets_as_many_nodes_as_there_may_be_which_end_when_nothing_runs_there(shell: Shell) -> None:
    search = {"name": "random", "metric": "validation_error", "max_trials": 8, "max_length": {"batches": 64}}
    experiment = _create(shell, searcher=search)
    wait_until(lambda: _slots(shell) == [1, 2, 2])
    wait_until(lambda: any(node["trials"] and node["slots"] == 2 for node in shell.json("cluster", "info")["nodes"]))
    wait_until(lambda: shell.experiment(experiment)["state"] == "completed")
    assert [trial["restarts"] for trial in shell.experiment(experiment)["trials"]] == [0] * 8
    wait_until(lambda: _slots(shell) == [1])


def test_a_trial_larger_than_the_cluster_waits_for_the_nodes_it_needs(shell: Shell) -> None:
    single = {"name": "single", "metric": "validation_error", "max_length": {"batches": 8}}
    experiment = _create(shell, searcher=single, resources={"slots_per_trial": 4})
    reason = "needs 4 slots, the cluster has 1, waits for more nodes"
    wait_until(lambda: shell.experiment(experiment)["trials"][0]["waiting"] == reason)
    wait_until(lambda: shell.experiment(experiment)["state"] in ("completed", "errored"))
    trial = shell.experiment(experiment)["trials"][0]
    assert (trial["state"], trial["restarts"], trial["run"], trial["batches"]) == ("completed", 0, 1, 8)
    wait_until(lambda: _slots(shell) == [1])
