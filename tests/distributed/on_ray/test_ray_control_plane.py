"""A control plane that comes back at another address, for trials on nodes that do not see its disk."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from trek.client.embedded import running_address
from trek.testing.ray_cluster import RayCluster, can_hide_folders
from trek.testing.shell import Shell, wait_until

LENGTH, PERIOD = 160, 8


@pytest.mark.skipif(not can_hide_folders(), reason="needs root, to give a node a disk of its own")
def test_a_trial_on_a_far_node_finds_a_control_plane_that_listens_elsewhere(cluster: RayCluster, shell: Shell) -> None:
    shell.home.mkdir()
    shell.variables["TREK_WARM_START"] = "0"  # a warm parent of this machine would see its disk
    node = cluster.add_far_node(shell.home, place=1)
    shell.variables["TREK_ENGINE_OPTIONS"] = "'resources={place: 1}'"
    done = shell.create(
        "--no-follow", "--json",
        hyperparameters={"learning_rate": 0.05, "global_batch_size": 32, "sleep_s": 0.1},
        searcher={"name": "single", "metric": "validation_error", "max_length": {"batches": LENGTH}},
        min_validation_period={"batches": PERIOD}, min_checkpoint_period={"batches": PERIOD},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    experiment = str(json.loads(done.stdout)["id"])
    wait_until(lambda: _trial(shell, experiment)["batches"] > PERIOD)
    before = running_address(shell.home)
    assert before is not None
    shell.control_plane().send_signal(signal.SIGKILL)
    reported = _trial(shell, experiment)["batches"]  # asks the next one, which the command starts
    after = running_address(shell.home)
    assert after is not None
    assert after.url != before.url
    wait_until(lambda: _trial(shell, experiment)["batches"] > reported + PERIOD)
    assert _trial(shell, experiment)["state"] == "running", "it reports to the new one while it trains"
    wait_until(lambda: shell.experiment(experiment)["state"] in ("completed", "errored"))
    node.kill()
    trial = _trial(shell, experiment)
    assert (trial["state"], trial["restarts"], trial["run"], trial["batches"]) == ("completed", 0, 1, LENGTH)
    reports = shell.json("trial", "metrics", str(trial["id"]), "--group", "validation")
    assert [point["batches"] for point in reports] == [*range(PERIOD, LENGTH + 1, PERIOD)]


def _trial(shell: Shell, experiment: str) -> dict[str, Any]:
    return dict(shell.experiment(experiment)["trials"][0])
