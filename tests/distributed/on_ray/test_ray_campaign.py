"""Node kills by the hundred, with the same ledgers as locally: `make campaign ARGS="-k ray"`."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import trek
from trek.testing.elastic_training import check_ledgers, train_with_ledger
from trek.testing.ray_cluster import RayCluster
from trek.testing.recorded_gang import wait_for

NUM_KILLS = 100


@pytest.mark.campaign
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(NUM_KILLS))
def test_every_row_is_trained_once_whichever_node_is_killed_when(
    cluster: RayCluster, tmp_path: Path, seed: int
) -> None:
    """A node dies after a number of written lines that the seed chooses; in every third run its place stays empty."""
    chooser = random.Random(seed)
    ledgers = tmp_path / "ledgers"
    ledgers.mkdir()
    nodes = [cluster.add_node(place=1), cluster.add_node(place=1)]
    doomed, num_lines = chooser.choice(nodes), chooser.randrange(1, 40)
    settings = {
        "workers": (1, 2),
        "engine": "ray",
        "engine_options": {"address": cluster.address, "resources": {"place": 1}},
        "name": f"seed-{seed}",
    }
    with ThreadPoolExecutor(1) as pool:
        training = pool.submit(trek.run, train_with_ledger, str(ledgers), (), 2, 0.02, **settings)
        wait_for(lambda: training.done() or _num_lines(ledgers) >= num_lines)
        nodes.remove(doomed)
        cluster.kill_node(doomed)
        if seed % 3:
            nodes.append(cluster.add_node(place=1))
        result = training.result()
    for node in nodes:
        cluster.kill_node(node)
    check_ledgers(ledgers, epochs=2)
    assert result["batches"] == 24


def _num_lines(folder: Path) -> int:
    return sum(len(path.read_text().splitlines()) for path in folder.glob("*.jsonl"))
