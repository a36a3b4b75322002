"""GPUs of a cluster as slots, each for one member or in fractions. Nothing is computed on them: there are none here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'trek-ml[ray]'")

import numpy as np
import ray

from trek.data import Table
from trek.data.execution import ray_delivery, running_on
from trek.data.execution.ray_executor import RayExecutor
from trek.engines import GangSpec
from trek.engines.ray.ray_engine import RayEngine
from trek.errors import InputError
from trek.testing.ray_cluster import FarNode, RayCluster, can_hide_folders
from trek.testing.recorded_gang import Recorder, python, wait_for
from trek.testing.shell import Shell, wait_until

pytestmark = pytest.mark.skipif(not can_hide_folders(), reason="needs root, to give a node devices of its own")
SHOW = python("import os, time; print(os.environ['CUDA_VISIBLE_DEVICES'], flush=True); time.sleep(600)")


@pytest.fixture
def node(cluster: RayCluster) -> Iterator[FarNode]:
    """A node with two GPUs, the only ones of the cluster."""
    made = cluster.add_gpu_node(2, place=4)
    yield made
    made.kill()
    wait_for(lambda: not made.is_alive)


def _devices(engine: RayEngine, num_workers: int) -> tuple[list[str], list[tuple[str, ...]]]:
    """What each of the workers finds in its environment, and what their gang says of them."""
    recorder = Recorder()
    gang = engine.start(GangSpec(SHOW, num_workers), on_line=recorder)
    try:
        wait_for(lambda: all(recorder.texts(rank) for rank in range(num_workers)))
        found = [recorder.texts(rank)[0] for rank in range(num_workers)]
        return found, [place.devices for place in gang.placements]
    finally:
        gang.stop(grace_s=1)


def test_slots_are_gpus_and_two_members_never_share_one(cluster: RayCluster, node: FarNode) -> None:
    engine = RayEngine(address=cluster.address, warm_start=False)
    assert (engine.slots(), engine.num_gpus()) == (2, 2)
    assert {one.slots for one in engine.nodes() if one.address != node.node_ip_address} == {0}
    found, devices = _devices(engine, 2)
    assert sorted(found) == ["0", "1"]
    assert devices == [(f"cuda:{one}",) for one in found]


def test_members_with_fractions_share_a_gpu(cluster: RayCluster, node: FarNode) -> None:
    engine = RayEngine(address=cluster.address, gpus=0.5, warm_start=False)
    assert engine.slots() == 4
    found, devices = _devices(engine, 4)
    assert sorted(found) == ["0", "0", "1", "1"]
    assert devices == [(f"cuda:{one}",) for one in found]


def test_a_cluster_with_gpus_can_be_used_without_them(cluster: RayCluster, node: FarNode) -> None:
    engine = RayEngine(address=cluster.address, gpus=0)
    assert (engine.slots(), engine.num_gpus()) == (16, 0)


def test_more_gpus_than_there_are_is_one_clear_error(cluster: RayCluster, node: FarNode) -> None:
    with pytest.raises(
        InputError, match=r"3 workers with 1 CPU, 1 GPU each .* 3 GPU needed, and the cluster has 2 GPU"
    ):
        RayEngine(address=cluster.address).start(GangSpec(["true"], 3))


def test_memory_and_custom_resources_are_reserved(cluster: RayCluster, node: FarNode) -> None:
    engine = RayEngine(address=cluster.address, memory_gb=0.5, resources={"place": 2}, warm_start=False)
    assert engine.slots() == 2
    gang = engine.start(GangSpec(python("import time; time.sleep(600)"), 2))
    try:
        wait_for(lambda: _taken() == {"CPU": 2, "GPU": 2, "memory": 2**30, "place": 4})
    finally:
        gang.stop(grace_s=1)
    wait_for(lambda: not any(_taken().values()))


def test_data_tasks_that_wait_for_their_reader_keep_gpus_but_no_cpus(
    cluster: RayCluster, node: FarNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_delivery, "AHEAD_BYTES", 1 << 20)
    with running_on(RayExecutor(address=cluster.address, gpus_per_task=1)):
        rows = iter(Table.of({"x": np.arange(6 * 8192)}, num_partitions=1).map(lambda batch: _widened(batch["x"])))
        assert next(rows).num_rows == 8192
        wait_for(lambda: _taken() == {"CPU": 0, "GPU": 1, "memory": 0, "place": 0})
        assert sum(batch.num_rows for batch in rows) == 5 * 8192
    wait_for(lambda: not any(_taken().values()))


def _widened(numbers: np.ndarray) -> dict[str, np.ndarray]:
    return {"y": np.repeat(numbers[:, None].astype(np.float64), 256, axis=1)}  # 16 MiB of each batch


def _taken() -> dict[str, float]:
    free, total = ray.available_resources(), ray.cluster_resources()
    return {name: round(total[name] - free.get(name, 0.0), 3) for name in ("CPU", "GPU", "memory", "place")}


def test_a_trial_gets_the_gpus_that_ray_assigned(node: FarNode, shell: Shell, tmp_path: Path) -> None:
    shell.model = tmp_path / "code"
    shell.model.mkdir()
    (shell.model / "show.py").write_text("import os; print('sees', os.environ['CUDA_VISIBLE_DEVICES'])")
    done = shell.create("--no-follow", "--json", entrypoint="python3 show.py", resources={"slots_per_trial": 2})
    assert done.returncode == 0, done.stderr
    experiment = str(json.loads(done.stdout)["id"])
    wait_until(lambda: shell.experiment(experiment)["state"] in ("completed", "errored"))
    log = shell.run("experiment", "logs", experiment).stdout
    assert sorted(line[line.index("sees") :] for line in log.splitlines() if "sees" in line) == ["sees 0", "sees 1"]
    info = shell.json("cluster", "info")
    assert (info["slots"], sum(one["gpus"] for one in info["nodes"])) == (2, 2)
