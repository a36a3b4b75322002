"""Nodes killed while Tables are computed, shuffled and read, by seed: `make campaign ARGS="-k ray_table"`.

Tasks run on two nodes alone, one of which dies, since no other has room for one: all rows between the first step and
the last are there. The ledger is the result: the rows of local execution, in its order, and nothing that stays on the
cluster.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from trek.data import Table
from trek.data.execution import running_on
from trek.data.execution.ray_executor import RayExecutor
from trek.testing.node_kills import DoomedNodes, NodeKill
from trek.testing.ray_cluster import RayCluster

NUM_SEEDS = 100
NUM_PARTITIONS, NUM_ROWS, NUM_NAMES = 8, 400_000, 1000
TASK_CPUS = 5
"""Two tasks on each of the large nodes, and none on another."""
NUM_BATCHES = 7 * NUM_PARTITIONS + 1
"""Of the first step, which are counted; one of them here, where the columns of its result are learned."""

SHUFFLES: dict[str, Callable[[Table], Table]] = {
    "read": lambda rows: rows,
    "partition": lambda rows: rows.partition(4, by="name").map(lambda batch: {**batch, "z": batch["x"] + 1}),
    "sort": lambda rows: rows.sort("name", "x", descending=True),
    "join": lambda rows: rows.join(_names(), on="k", how="outer"),
    "group": lambda rows: rows.reduce({"x": "sum", "y": "max", "n": ("*", "count")}, by="name"),
    "distinct": lambda rows: rows.distinct("y", "name"),
    "gather": lambda rows: rows.gather(by="k"),
    "twice": lambda rows: rows.sort("y", "x").partition(3, by="k").reduce({"x": "sum"}, by="k"),
}


class Recorded:
    """A function over batches that takes its time and writes a line for each that is done."""

    def __init__(self, ledger: Path) -> None:
        self._ledger = ledger

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        time.sleep(0.02)
        with self._ledger.open("a") as file:
            file.write("done\n")
        return {**batch, "y": batch["x"] % 5003}

    def num_lines(self) -> int:
        return len(self._ledger.read_text().splitlines()) if self._ledger.exists() else 0


def _rows() -> Table:
    x = np.arange(NUM_ROWS)
    names = np.array([f"name-{number:04}" for number in range(NUM_NAMES)])
    return Table.of({"x": x, "k": x * 7919 % 2003, "name": names[x * 31 % NUM_NAMES]}, num_partitions=NUM_PARTITIONS)


def _names() -> Table:
    return Table.of({"k": np.arange(3000), "city": [f"city-{number % 17}" for number in range(3000)]}, num_partitions=2)


@cache
def _expected(shuffle: str, folder: Path) -> pa.Table:
    with running_on("threads", num_workers=2):
        return SHUFFLES[shuffle](_rows().map(Recorded(folder / shuffle))).to_arrow()


@pytest.mark.campaign
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(NUM_SEEDS))
def test_a_shuffle_gives_the_rows_of_local_execution_whichever_node_is_killed_when(
    cluster: RayCluster,
    large_node: int,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    record_property: Callable[[str, object], None],
    seed: int,
) -> None:
    """The seed chooses after how many batches of the first step a node dies, and how long after that."""
    shuffle = [*SHUFFLES][seed % len(SHUFFLES)]
    recorded = Recorded(tmp_path / "ledger")
    kill = NodeKill.drawn(seed, num_nodes=1, max_progress=NUM_BATCHES, max_delay_s=0.8)

    def compute() -> pa.Table:
        executor = RayExecutor(4, address=cluster.address, cpus_per_task=TASK_CPUS, divides_relations=True)
        with running_on(executor):
            return SHUFFLES[shuffle](_rows().map(recorded)).to_arrow()

    nodes = DoomedNodes(cluster, kill, num_nodes=1, cpus=large_node)
    with cluster.leaving_nothing(), nodes, ThreadPoolExecutor(1) as pool:
        computing = pool.submit(compute)
        nodes.strike(
            recorded.num_lines,
            is_over=computing.done,
            before=lambda: record_property("was_in_time", not computing.done()),
        )
        rows = computing.result()
    record_property("num_batches_again", recorded.num_lines() - NUM_BATCHES)
    assert rows.equals(_expected(shuffle, tmp_path_factory.getbasetemp()))
