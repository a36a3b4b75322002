"""Tables on a real Ray cluster of three raylets: the contract of executors, the same results, nodes that die."""

from __future__ import annotations

import functools
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ray", reason="Ray is not installed")

import ray

import trek
from trek.data import Table
from trek.data.execution import open_executor, running_on
from trek.data.execution.base import Executor
from trek.data.execution.ray_executor import RayExecutor
from trek.data.execution.ray_nodes import check_versions, versions
from trek.errors import DataUnavailable, InputError, OutsideError, TrainingError
from trek.testing.execution_conformance import ExecutorConformance
from trek.testing.ray_cluster import RayCluster

pytestmark = pytest.mark.timeout(300)


class TestRay(ExecutorConformance):
    num_spilling_batches = 200  # more than the store of the node that this process is on

    @pytest.fixture
    def make_executor(self, cluster: RayCluster) -> Callable[..., Executor]:
        return functools.partial(RayExecutor, 2, address=cluster.address)


def test_functions_run_on_the_nodes_with_the_same_result(on_ray: Executor) -> None:
    table = Table.of({"x": np.arange(1000), "image": np.ones((1000, 4, 4), np.uint8)}, num_partitions=4)
    ready = table.map(lambda batch: {**batch, "pid": np.full(len(batch["x"]), os.getpid())}).filter(trek.col("x") < 900)
    columns = ready.partition(3).to_numpy()
    assert columns["x"].tolist() == list(range(900))
    assert columns["image"].shape == (900, 4, 4)
    assert os.getpid() not in columns["pid"]


_LEFT = {"k": np.arange(500) % 7, "x": np.arange(500), "name": [f"n{i % 11}" if i % 13 else None for i in range(500)]}
_NAMES = {"k": np.arange(5), "city": [f"c{i}" for i in range(5)]}


def _left() -> Table:
    return Table.of(_LEFT, num_partitions=4)


@pytest.mark.parametrize(
    "plan",
    [
        lambda: _left().map(lambda batch: {"x": batch["x"] * 2, "n": np.full(len(batch["x"]), len(batch["x"]))}),
        lambda: _left().map(lambda row: {"x": row["x"] + 1}, rows=True).partition(3),
        lambda: _left().flat_map(lambda row: [{"x": row["x"]}] * (row["x"] % 3)),
        lambda: _left().filter(trek.col("x") % 2 == 0).with_columns(y=trek.col("x") * 3).select("k", "y"),
        lambda: _left().partition(5, by="name"),
        lambda: _left().partition(3, by="k").compute(lambda batches, context: batches),
        lambda: _left().join(Table.of(_NAMES), on="k", how="outer").sort("name", "x"),
        lambda: _left().reduce({"x": "sum", "n": ("*", "count")}, by="k"),
        lambda: _left().reduce(lambda rows: {"x": rows["x"].sum(keepdims=True)}, by="name"),
        lambda: _left().reduce(lambda rows: {"x": rows["x"].max(keepdims=True)}),
        lambda: _left().map(lambda batch: batch).distinct("k").union(_left()),
        lambda: _left().gather(by="k"),
        lambda: _left().replicate(2).window(50).reduce({"x": "sum"}),
        lambda: Table.generate(lambda context: ({"i": np.full(3, context.index)} for _ in range(2)), num_partitions=3),
        lambda: Table.stream([{"x": np.arange(3)}]).cache().map(lambda batch: {"x": batch["x"] + 1}),
    ],
)
def test_plans_give_the_same_rows_as_here(on_ray: Executor, plan: Callable[[], Table]) -> None:
    rows = plan().to_arrow()
    with running_on("threads", num_workers=2):
        assert rows.equals(plan().to_arrow())


@pytest.mark.parametrize(
    "plan",
    [
        lambda: _left().map(lambda batch: batch).join(Table.of(_NAMES), on="k", how="outer"),
        lambda: _left().join(Table.of(_NAMES), on="k").reduce({"x": "sum", "n": ("*", "count")}, by="city"),
        lambda: _left().sort("name", "x", descending=True).distinct("k"),
        lambda: _left().gather(by="name"),
    ],
)
def test_relations_divided_among_the_nodes_give_the_same_rows(cluster: RayCluster, plan: Callable[[], Table]) -> None:
    with running_on(RayExecutor(2, address=cluster.address, divides_relations=True)):
        rows = plan().to_arrow()
    with running_on("threads", num_workers=2):
        assert rows.equals(plan().to_arrow())


@pytest.mark.parametrize("relation", [lambda rows: rows.sort("x"), lambda rows: rows.distinct("x")])
def test_nothing_of_a_divided_relation_stays_in_the_object_stores(
    cluster: RayCluster, relation: Callable[[Table], Table]
) -> None:
    rows = Table.of({"x": np.arange(400_000)[::-1]}, num_partitions=4)  # Ray keeps small objects elsewhere
    with cluster.leaving_nothing(), running_on(RayExecutor(2, address=cluster.address, divides_relations=True)):
        assert relation(rows.map(lambda batch: batch)).num_rows == 400_000


def test_rows_outlive_the_executor(cluster: RayCluster) -> None:
    with running_on("ray", address=cluster.address):
        cached = Table.of({"x": np.arange(1000)}, num_partitions=2).map(lambda batch: {"y": batch["x"] + 1}).cache()
        columns = cached.to_torch()
    assert cached.to_numpy()["y"].sum() == int(columns["y"].sum()) == 500500


def test_a_persisted_table_is_written_on_this_machine(on_ray: Executor, tmp_path: Path) -> None:
    pids = Table.of({"x": np.arange(9)}, num_partitions=3).map(lambda b: {**b, "pid": b["x"] * 0 + os.getpid()})
    kept = pids.persist(tmp_path / "kept")
    assert [path.name for path in sorted((tmp_path / "kept").iterdir())][1:] == [
        f"shard-0000{i}.parquet" for i in range(3)
    ]
    assert os.getpid() not in kept.to_numpy()["pid"]


@pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning")  # Ray Data sets its own deprecated settings
def test_rows_pass_through_ray_data(on_ray: Executor) -> None:
    images = np.arange(600, dtype=np.float32).reshape(100, 2, 3)
    table = Table.of({"x": np.arange(100), "image": images}, num_partitions=4).map(lambda batch: batch)
    dataset = table.to_ray_data().map_batches(lambda batch: {**batch, "x": batch["x"] * 2})
    back = trek.data.from_ray_data(dataset)
    assert back.schema.field("image").type == table.schema.field("image").type
    assert back.num_rows == 100
    for executor in ("threads", "processes"):
        with running_on(executor, num_workers=1):
            columns = back.map(lambda batch: batch).sort("x").to_numpy()
        assert columns["x"].tolist() == list(range(0, 200, 2))
        np.testing.assert_array_equal(columns["image"], images)
    assert back.reduce({"x": "sum"}).to_arrow()["x"].to_pylist() == [9900]


def test_shared_rows_stay_on_the_cluster_for_any_process_of_it(on_ray: Executor) -> None:
    table = Table.of({"x": np.arange(1000), "t": np.ones((1000, 2))}, num_partitions=3).map(lambda batch: batch)
    with table.share() as handle:
        assert isinstance(handle, trek.data.Handle)
        assert handle.num_rows == 1000
        total = ray.get(ray.remote(_sum_of).remote(str(handle)))
        assert total == table.to_numpy()["x"].sum()
        assert trek.data.open(str(handle)).to_arrow().equals(table.to_arrow())
    with pytest.raises(DataUnavailable, match="no longer exists"):
        trek.data.open(str(handle))


def _sum_of(handle: str) -> int:
    return int(trek.data.open(handle).to_numpy()["x"].sum())


def test_a_task_that_kills_its_worker_is_an_error(cluster: RayCluster) -> None:
    def die(batch: Any) -> Any:
        os._exit(3)

    executor = RayExecutor(1, address=cluster.address, max_retries=1)
    with running_on(executor), pytest.raises(OutsideError, match="was lost, and could not be run again"):
        Table.of({"x": [1]}).map(die).to_arrow()


def test_a_users_failure_keeps_its_traceback(on_ray: Executor) -> None:
    def broken(batch: Any) -> Any:
        raise KeyError("missing")

    with pytest.raises(TrainingError, match="map broken") as caught:
        Table.of({"x": np.arange(10)}, num_partitions=2).map(broken).to_arrow()
    assert "in broken" in caught.value.traceback_text


def test_a_cluster_that_cannot_be_used_is_one_clear_error(cluster: RayCluster, unused_port: int) -> None:
    with pytest.raises(OutsideError, match=r"no Ray cluster answers at 127\.0\.0\.1"):
        open_executor("ray", address=f"127.0.0.1:{unused_port}")
    with pytest.raises(InputError, match="'ray://somewhere' is not a valid address"):
        open_executor("ray", address="ray://somewhere")
    with pytest.raises(InputError, match="needs 1000 CPUs and 0 GPUs, and the cluster has 12 CPUs"):
        open_executor("ray", address=cluster.address, cpus_per_task=1000)
    with pytest.raises(InputError, match=r"node 10\.0\.0\.9 .* has trek 0\.0\.1, and this process has trek"):
        check_versions({**versions(), "trek": "0.0.1"}, node="10.0.0.9")


@pytest.fixture
def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_send_trek_is_true_or_false(cluster: RayCluster) -> None:
    with (
        pytest.raises(InputError, match="send_trek must be true or false, got 'yes'"),
        running_on("ray", address=cluster.address, send_trek="yes"),
    ):
        pass


def test_a_node_killed_in_the_middle_of_a_shuffle_changes_nothing(cluster: RayCluster, tmp_path: Path) -> None:
    """Its tasks are run again, and the rows that it held are made again: all rows, none twice."""
    started = tmp_path / "started"
    victim = cluster.add_node(victim=1)
    executor = RayExecutor(address=cluster.address)

    def slowly(batch: Any) -> Any:
        if batch["x"][0] == 0 and not started.exists():  # the first attempt at a partition waits for the kill
            started.touch()
            while not (tmp_path / "killed").exists():
                time.sleep(0.01)
        return {"k": batch["x"] % 5, "x": batch["x"]}

    def kill() -> None:
        while not started.exists():
            time.sleep(0.01)
        cluster.kill_node(victim, with_workers=True)
        (tmp_path / "killed").touch()

    first = Table.of({"x": np.arange(400_000)}, num_partitions=8).map(lambda batch: {"x": batch["x"]}).partition(7)
    killer = threading.Thread(target=kill)
    killer.start()
    with running_on(executor):
        rows = first.map(slowly).partition(3, by="k").map(lambda batch: batch).to_arrow()
    killer.join()
    with running_on("threads"):
        expected = first.map(slowly).partition(3, by="k").to_arrow()
    assert rows.equals(expected)
