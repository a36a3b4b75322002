"""Checkpoints of trials on nodes that share no disk with the control plane."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from trek.testing.ray_cluster import RayCluster, can_hide_folders
from trek.testing.shell import Shell, wait_until
from trek.train.checkpointing.checkpoint_folder import CheckpointFolder

HPARAMS = {"learning_rate": 0.05, "global_batch_size": 32, "first_run_sleep_s": 1.0}


@pytest.mark.skipif(not can_hide_folders(), reason="needs root, to give a node a disk of its own")
def test_a_trial_moves_between_nodes_that_share_no_disk_to_the_bit(cluster: RayCluster, shell: Shell) -> None:
    shell.home.mkdir()
    shell.variables["TREK_WARM_START"] = "0"  # a warm parent of this machine would see its disk
    nodes = [cluster.add_far_node(shell.home, place=1) for _ in range(2)]
    by_address = {node.node_ip_address: node for node in nodes}
    shell.variables["TREK_ENGINE_OPTIONS"] = "'resources={place: 1}'"
    moved = _create(shell, HPARAMS)
    wait_until(lambda: _trial(shell, moved)["batches"] > 8)
    used = next(node["address"] for node in shell.json("cluster", "info")["nodes"] if node["trials"])
    by_address.pop(used).kill()
    wait_until(lambda: shell.experiment(moved)["state"] == "completed")
    assert (_trial(shell, moved)["restarts"], _trial(shell, moved)["batches"]) == (1, 32)
    whole = _create(shell, {**HPARAMS, "first_run_sleep_s": 0})
    wait_until(lambda: shell.experiment(whole)["state"] == "completed")
    for node in by_address.values():
        node.kill()
    assert _trial(shell, whole)["restarts"] == 0
    logs = shell.run("experiment", "logs", moved).stdout
    assert logs.count("checkpoints go through the control plane") == 2, "once a run"
    assert torch.equal(_weights(shell, moved), _weights(shell, whole))


def _create(shell: Shell, hparams: dict[str, float]) -> str:
    done = shell.create(
        "--no-follow", "--json", hyperparameters=hparams, min_checkpoint_period={"batches": 8},
        searcher={"name": "single", "metric": "validation_error", "max_length": {"batches": 32}},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return str(json.loads(done.stdout)["id"])


def _trial(shell: Shell, experiment: str) -> dict[str, Any]:
    return dict(shell.experiment(experiment)["trials"][0])


def _weights(shell: Shell, experiment: str) -> torch.Tensor:
    """Of the newest checkpoint, which is on the disk of the control plane."""
    newest = shell.json("checkpoint", "list", "--experiment", experiment)[0]
    folder = CheckpointFolder(newest["path"])
    folder.verify()
    assert folder.batches == 32
    return torch.cat([one.flatten() for _, one in sorted(folder.state_dict().items())])
