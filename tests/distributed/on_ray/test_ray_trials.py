"""Trials on a Ray cluster, by whole commands: adopted after a killed control plane, and moved off a killed node."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from trek.testing.ray_cluster import RayCluster
from trek.testing.shell import Shell, wait_until

SPACE = {"learning_rate": {"type": "log", "minval": -3, "maxval": -1}, "global_batch_size": 32, "sleep_s": 0.05}
SEARCH = {"name": "random", "metric": "validation_error", "max_trials": 3, "max_length": {"batches": 64}}


def _create(shell: Shell, **changes: Any) -> str:
    done = shell.create("--no-follow", "--json", **changes)
    assert done.returncode == 0, done.stderr
    return str(json.loads(done.stdout)["id"])


def _batches(shell: Shell, trial_id: int) -> list[int]:
    return [point["batches"] for point in shell.json("trial", "metrics", str(trial_id), "--group", "validation")]


@pytest.mark.campaign
def test_a_search_over_nodes_outlives_a_killed_control_plane(cluster: RayCluster, shell: Shell) -> None:
    experiment = _create(
        shell, engine="ray", hyperparameters=SPACE, searcher=SEARCH, min_validation_period={"batches": 8},
        resources={"slots_per_trial": 2},
    )  # fmt: skip
    # All of them: a gang that was just being started is started again, as another run.
    wait_until(lambda: all(trial["batches"] for trial in shell.experiment(experiment)["trials"]))
    info = shell.json("cluster", "info")
    assert info["engine"] == "ray"
    assert info["slots"] >= 12
    assert {node["address"] for node in info["nodes"]} >= {"127.0.0.2", "127.0.0.3", "127.0.0.4"}
    assert {trial for node in info["nodes"] for trial in node["trials"]} <= {1, 2, 3}
    shell.control_plane().send_signal(signal.SIGKILL)
    wait_until(lambda: shell.experiment(experiment)["state"] == "completed")
    trials = shell.experiment(experiment)["trials"]
    assert [(trial["state"], trial["restarts"], trial["run"]) for trial in trials] == [("completed", 0, 1)] * 3
    for trial in trials:
        assert _batches(shell, trial["id"]) == [*range(8, 65, 8)]


@pytest.mark.campaign
def test_a_trial_of_a_killed_node_goes_on_elsewhere_from_its_checkpoint(cluster: RayCluster, shell: Shell) -> None:
    nodes = {node.node_ip_address: node for node in (cluster.add_node(place=1), cluster.add_node(place=1))}
    shell.variables["TREK_ENGINE_OPTIONS"] = "'resources={place: 1}'"
    experiment = _create(
        shell,
        hyperparameters={"learning_rate": 0.05, "global_batch_size": 32, "sleep_s": 0.1},
        searcher={"name": "single", "metric": "validation_error", "max_length": {"batches": 64}},
        min_validation_period={"batches": 8},
        min_checkpoint_period={"batches": 8},
    )
    wait_until(lambda: shell.experiment(experiment)["trials"][0]["batches"] > 8)
    used = next(node["address"] for node in shell.json("cluster", "info")["nodes"] if node["trials"])
    cluster.kill_node(nodes.pop(used))
    wait_until(lambda: shell.experiment(experiment)["state"] == "completed")
    trial = shell.experiment(experiment)["trials"][0]
    for node in nodes.values():
        cluster.kill_node(node)
    assert (trial["state"], trial["batches"], trial["restarts"]) == ("completed", 64, 1)
    assert _batches(shell, trial["id"]) == [*range(8, 65, 8)]


def test_the_engine_in_a_config_is_that_of_the_control_plane_it_starts(cluster: RayCluster, shell: Shell) -> None:
    del shell.variables["TREK_ENGINE"]
    experiment = _create(
        shell,
        engine="ray",
        hyperparameters={"learning_rate": 0.05, "global_batch_size": 32, "sleep_s": 0.05},
        searcher={"name": "single", "metric": "validation_error", "max_length": {"batches": 64}},
    )
    wait_until(lambda: shell.experiment(experiment)["trials"][0]["batches"] > 0)
    shell.control_plane().send_signal(signal.SIGKILL)
    wait_until(lambda: shell.experiment(experiment)["state"] == "completed")
    assert shell.json("cluster", "info")["engine"] == "ray", "the next one has found the experiment"


def test_a_script_is_launched_on_nodes_with_the_folder_it_is_in(
    cluster: RayCluster, shell: Shell, tmp_path: Path
) -> None:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "beside.py").write_text("word = 'beside'")
    (folder / "script.py").write_text(
        "import os, sys, beside; print(beside.word, sys.argv[1], os.environ['RANK'], os.getcwd())"
    )
    options = ["--engine-option", f"address={cluster.address}", "--engine-option", "placement=STRICT_SPREAD"]
    command = ["launch", "-n", "2", "--engine", "ray", *options, "--cwd", str(folder), "script.py", "given"]
    done = shell.run(*command)
    assert done.returncode == 0, done.stderr
    lines = sorted(line.split() for line in done.stdout.splitlines())
    assert [line[:-1] for line in lines] == [["[rank", f"{rank}]", "beside", "given", str(rank)] for rank in range(2)]
    assert not any(line[-1] == str(folder) for line in lines), "it was unpacked there"


def test_a_script_on_a_cluster_without_a_slot_for_it_is_told_what_is_missing(cluster: RayCluster, shell: Shell) -> None:
    options = ["--engine-option", f"address={cluster.address}", "--engine-option", "resources={tpu: 1}"]
    done = shell.run("launch", "--engine", "ray", *options, "--no-python", "true")
    assert done.returncode == 2, done.stderr
    assert "1 tpu needed, and the cluster has 0 tpu" in done.stderr
