"""Node kills by the hundred, with the same ledgers as locally: `make campaign ARGS="-k ray"`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import trek
from trek.testing.elastic_training import check_ledgers, train_with_ledger
from trek.testing.node_kills import DoomedNodes, NodeKill
from trek.testing.ray_cluster import RayCluster

NUM_KILLS = 100


@pytest.mark.campaign
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(NUM_KILLS))
def test_every_row_is_trained_once_whichever_node_is_killed_when(
    cluster: RayCluster, tmp_path: Path, seed: int
) -> None:
    """The seed chooses the node and after how many written lines it dies."""
    kill = NodeKill.drawn(seed, num_nodes=2, max_progress=39)
    ledgers = tmp_path / "ledgers"
    ledgers.mkdir()
    settings = {
        "workers": (1, 2),
        "engine": "ray",
        "engine_options": {"address": cluster.address, "resources": {"place": 1}},
        "name": f"seed-{seed}",
    }
    nodes = DoomedNodes(cluster, kill, num_nodes=2, place=1)
    with cluster.leaving_nothing(), nodes, ThreadPoolExecutor(1) as pool:
        training = pool.submit(trek.run, train_with_ledger, str(ledgers), (), 2, 0.02, **settings)
        nodes.strike(lambda: _num_lines(ledgers), is_over=training.done)
        result = training.result()
    check_ledgers(ledgers, epochs=2)
    assert result["batches"] == 24


def _num_lines(folder: Path) -> int:
    return sum(len(path.read_text().splitlines()) for path in folder.glob("*.jsonl"))
