"""Nodes killed during searches, by seed: `make campaign ARGS="-k ray_search"`.

The ledger of a search is what its control plane has stored: every trial once, each with every report once and with a
checkpoint of its end.
"""

from __future__ import annotations

import json

import pytest

from trek.testing.node_kills import DoomedNodes, NodeKill
from trek.testing.ray_cluster import RayCluster
from trek.testing.shell import Shell, wait_until

NUM_SEEDS = 100
NUM_TRIALS, LENGTH, PERIOD = 3, 64, 8
SPACE = {"learning_rate": {"type": "log", "minval": -3, "maxval": -1}, "global_batch_size": 32, "sleep_s": 0.05}
SEARCH = {"name": "random", "metric": "validation_error", "max_trials": NUM_TRIALS, "max_length": {"batches": LENGTH}}


@pytest.mark.campaign
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(NUM_SEEDS))
def test_a_search_loses_nothing_and_counts_nothing_twice_whichever_node_is_killed_when(
    cluster: RayCluster, shell: Shell, seed: int
) -> None:
    """The seed chooses the node and after how many batches of all trials it dies."""
    kill = NodeKill.drawn(seed, num_nodes=2, max_progress=NUM_TRIALS * LENGTH - 1)
    shell.variables["TREK_ENGINE_OPTIONS"] = "'resources={place: 0.5}'"
    with cluster.leaving_nothing(), DoomedNodes(cluster, kill, num_nodes=2, place=1) as nodes:
        experiment = _create(shell)
        nodes.strike(lambda: _num_trained(shell, experiment), poll_s=0.25)
        wait_until(lambda: shell.experiment(experiment)["state"] in ("completed", "errored"), timeout_s=500)
        _check(shell, experiment)
        shell.clean_up()  # before the nodes on which it may be closing gangs


def _create(shell: Shell) -> str:
    done = shell.create(
        "--no-follow", "--json", hyperparameters=SPACE, searcher=SEARCH, min_validation_period={"batches": PERIOD},
        min_checkpoint_period={"batches": PERIOD},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return str(json.loads(done.stdout)["id"])


def _num_trained(shell: Shell, experiment: str) -> int:
    return sum(trial["batches"] for trial in shell.experiment(experiment)["trials"])


def _check(shell: Shell, experiment: str) -> None:
    found = shell.experiment(experiment)
    states = [(trial["state"], trial["batches"]) for trial in found["trials"]]
    assert states == [("completed", LENGTH)] * NUM_TRIALS, found["trials"]
    for trial in found["trials"]:
        assert trial["restarts"] <= 1, "one node was killed"
        reports = shell.json("trial", "metrics", str(trial["id"]), "--group", "validation")
        assert [point["batches"] for point in reports] == [*range(PERIOD, LENGTH + 1, PERIOD)]
        kept = shell.json("checkpoint", "list", "--trial", str(trial["id"]))
        assert max(one["batches"] for one in kept) == LENGTH
