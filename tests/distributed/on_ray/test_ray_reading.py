"""Rows that this process reads while the nodes of a Ray cluster compute them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ray", reason="Ray is not installed")

import ray
from torch.utils.data import DataLoader

import trek
from trek.data import Table
from trek.data.execution import ray_delivery, running_on
from trek.data.execution.base import Executor
from trek.data.execution.ray_executor import RayExecutor
from trek.errors import TrainingError
from trek.testing.ray_cluster import RayCluster
from trek.testing.shell import wait_until

pytestmark = pytest.mark.timeout(300)


def _with_process(batch: dict[str, Any]) -> dict[str, Any]:
    return {**batch, "pid": np.full(len(batch["x"]), os.getpid())}


def test_iterating_has_the_nodes_compute(on_ray: Executor) -> None:
    table = Table.of({"x": np.arange(100)}, num_partitions=5).map(_with_process).select("pid", "x")
    batches = [batch.to_pydict() for batch in table]
    assert [x for batch in batches for x in batch["x"]] == list(range(100))
    assert os.getpid() not in {pid for batch in batches for pid in batch["pid"]}
    assert os.getpid() not in table.head(3).to_numpy()["pid"]
    shares = [share for _, share in table.union(table).batches(7)]
    assert [x for share in shares for x in share.tolist()] == [*range(100)] * 2


def test_rows_without_a_function_are_read_here(
    on_ray: Executor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the files need not be on the nodes."""
    rows = Table.of({"x": np.arange(10)}, num_partitions=2)
    rows.persist(tmp_path / "rows")
    monkeypatch.setattr(on_ray, "read", None)
    for table in (rows, trek.data.open(tmp_path / "rows").filter(trek.col("x") >= 0)):
        assert [x for batch in table for x in batch.column("x").to_pylist()] == list(range(10))
    stream = Table.stream([{"x": np.arange(3)}]).map(_with_process)
    assert [set(batch.column("pid").to_pylist()) for batch in stream] == [{os.getpid()}]


def test_the_first_rows_take_one_partition(on_ray: Executor, tmp_path: Path) -> None:
    def recorded(batch: dict[str, Any]) -> dict[str, Any]:
        (tmp_path / str(batch["x"][0])).touch()
        return batch

    table = Table.of({"x": np.arange(100)}, num_partitions=10).map(recorded)
    assert table.head(3).to_numpy()["x"].tolist() == [0, 1, 2]
    assert [path.name for path in tmp_path.iterdir()] == ["0"]


def test_a_worker_that_dies_while_it_sends_sends_no_row_twice(cluster: RayCluster, tmp_path: Path) -> None:
    """Batches of which some came before it died, and come again."""

    def dies_once(batch: dict[str, Any]) -> dict[str, Any]:
        if batch["x"][0] == 5 * 8192 and not (tmp_path / "died").exists():
            wait_until(lambda: (tmp_path / "read").exists())
            (tmp_path / "died").touch()
            os._exit(1)
        return batch

    table = Table.of({"x": np.arange(80_000)}, num_partitions=1).map(dies_once)
    with running_on(RayExecutor(1, address=cluster.address)):
        read = []
        for batch in table:
            read.extend(batch.column("x").to_pylist())
            (tmp_path / "read").touch()
    assert (tmp_path / "died").exists()
    assert read == list(range(80_000))


def test_a_node_that_dies_while_it_sends_loses_no_row(cluster: RayCluster, tmp_path: Path) -> None:
    victim = cluster.add_node(victim=1, cpus=4)
    address = victim.node_ip_address

    def waits_on_the_victim(batch: dict[str, Any]) -> dict[str, Any]:
        if ray.util.get_node_ip_address() == address and batch["x"][0] % 40_000:  # the first batch of each is sent
            (tmp_path / "started").touch()
            time.sleep(600)
        return batch

    def kill() -> None:
        wait_until(lambda: (tmp_path / "started").exists())
        cluster.kill_node(victim, with_workers=True)

    killer = Thread(target=kill)
    killer.start()
    with running_on(RayExecutor(address=cluster.address, cpus_per_task=4)):
        table = Table.of({"x": np.arange(320_000)}, num_partitions=8).map(waits_on_the_victim)
        rows = table.cache().to_numpy()["x"]
    killer.join()
    assert (tmp_path / "started").exists()
    assert rows.tolist() == list(range(320_000))


def test_a_slow_reader_holds_up_the_tasks(cluster: RayCluster, tmp_path: Path) -> None:
    def recorded(batch: dict[str, Any]) -> dict[str, Any]:
        with (tmp_path / "done").open("a") as file:
            file.write("x")
        return {"y": np.ones((len(batch["x"]), 1024))}  # 64 MiB a batch, of which 256 MiB wait here

    with cluster.leaving_nothing(), running_on(RayExecutor(2, address=cluster.address)):
        batches = iter(Table.of({"x": np.arange(40 * 8192)}, num_partitions=2).map(recorded))
        assert next(batches).num_rows == 8192
        time.sleep(3)
        num_done = len((tmp_path / "done").read_text())
        batches.close()  # type: ignore[attr-defined]
    assert num_done <= 12, "five are here, two in the hands of threads, two in those of tasks"


def test_tables_are_read_in_turn_though_neither_fits(cluster: RayCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in training with a validation now and then: the tasks of one wait for room, and those of the other run."""
    monkeypatch.setattr(ray_delivery, "AHEAD_BYTES", 1 << 20)

    def widened(batch: dict[str, Any]) -> dict[str, Any]:
        return {"y": np.repeat(batch["x"][:, None].astype(np.float64), 256, axis=1)}  # 16 MiB a batch

    with running_on(RayExecutor(address=cluster.address, cpus_per_task=4)):
        table = Table.of({"x": np.arange(6 * 65536)}, num_partitions=6).map(widened)
        num_rows = 0
        for one, other in zip(table, table, strict=True):
            assert one.column("y")[0] == other.column("y")[0]
            num_rows += one.num_rows
    assert num_rows == 6 * 65536


def test_reading_that_stops_ends_its_tasks(on_ray: Executor, tmp_path: Path) -> None:
    def endless(context: Any) -> Iterator[dict[str, Any]]:
        while True:
            (tmp_path / f"{context.index}").touch()
            time.sleep(0.05)
            yield {"x": np.arange(3)}

    rows = iter(Table.generate(endless, num_partitions=2).map(lambda batch: batch))
    assert next(rows).num_rows == 3
    rows.close()  # type: ignore[attr-defined]
    for path in tmp_path.iterdir():
        path.unlink()
    wait_until(lambda: not _appears(tmp_path))


def _appears(folder: Path) -> bool:
    """Whether anybody writes there."""
    for path in folder.iterdir():
        path.unlink()
    time.sleep(1)
    return any(folder.iterdir())


def test_a_failure_ends_the_other_tasks_first(on_ray: Executor, tmp_path: Path) -> None:
    def fails(batch: dict[str, Any]) -> dict[str, Any]:
        if batch["x"][0] == 0:
            raise ValueError("the first")
        for number in range(100):
            (tmp_path / f"{number}").touch()
            time.sleep(0.02)
        return batch

    with pytest.raises(TrainingError, match="the first"):
        Table.of({"x": np.arange(8)}, num_partitions=8).map(fails).cache()
    assert not _appears(tmp_path)


def test_workers_of_a_data_loader_compute_for_themselves(on_ray: Executor) -> None:
    table = Table.of({"x": np.arange(100)}, num_partitions=4).map(lambda batch: {"x": batch["x"] * 2})
    batches = table.batches(10).as_dataset()
    loader = DataLoader(batches, batch_size=None, num_workers=2, multiprocessing_context="fork")
    assert [x for (batch,) in loader for x in batch.tolist()] == list(range(0, 200, 2))
