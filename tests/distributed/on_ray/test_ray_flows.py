"""Flows on a real Ray cluster: steps run on its nodes, artefacts come home, keys are those of local runs."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'trek[ray]'")

import trek
from trek.errors import TrainingError
from trek.flow import OUTPUT_DIR, Run, scratch
from trek.testing.ray_cluster import RayCluster

pytestmark = pytest.mark.timeout(300)


def _run(flow: trek.Flow, **settings: Any) -> Run:
    return flow.run(show=False, parallel=4, **settings)


def write_file(text: str) -> Path:
    path = scratch() / "written.txt"
    path.write_text(text)
    return path


def _flow() -> tuple[trek.Flow, dict[str, Any]]:
    flow = trek.Flow("everything")
    numbers = flow.step(lambda: np.arange(1000), name="numbers")
    file = flow.step(write_file, "hello")
    made = {
        "parent": flow.step(os.getppid, name="parent", cache=False),
        "sum": flow.step(lambda x: int(x.sum()), numbers, name="sum"),
        "text": flow.step(lambda path: path.read_text(), file, name="text"),
        "by_path": flow.step(lambda path: Path(path).is_dir() or Path(path).is_file(), numbers.path, name="by_path"),
        "mapped": flow.map(lambda x: x * 2, flow.step(lambda: [1, 2, 3], name="items"), name="mapped"),
        "copied": flow.command("copy", ["cp", file.path, OUTPUT_DIR], outputs=["written.txt"]),
    }
    return flow, made


def test_steps_run_on_the_cluster_with_the_keys_of_local_runs(cluster: RayCluster) -> None:
    flow, made = _flow()
    run = _run(flow, engine="ray")
    assert run[made["sum"]] == 499500
    assert run[made["text"]] == "hello"
    assert run[made["by_path"]] is True
    assert (
        [run[one] for one in made["mapped"]] == [2, 4, 6] if isinstance(made["mapped"], list) else run[made["mapped"]]
    )
    assert run[made["copied"]].read_text() == "hello"
    parent = run[made["parent"]]
    flow, made = _flow()
    again = _run(flow)
    states = again.states()
    assert states.pop("parent") == "done"
    assert set(states.values()) <= {"cached", "done"}
    assert states["sum"] == states["copy"] == states["text"] == "cached"
    assert again[made["parent"]] != parent


def test_a_step_that_fails_on_a_node_is_told_with_its_traceback(cluster: RayCluster) -> None:
    def broken() -> None:
        raise KeyError("missing")

    flow = trek.Flow("broken")
    flow.step(broken)
    with pytest.raises(TrainingError, match="step 'broken' failed: KeyError: 'missing'") as caught:
        _run(flow, engine="ray")
    assert "in broken" in caught.value.traceback_text


@pytest.mark.campaign
def test_a_node_killed_during_a_flow_costs_only_what_ran_there(cluster: RayCluster, tmp_path: Path) -> None:
    log, killed = tmp_path / "log", tmp_path / "killed"

    def slow(number: int) -> int:
        with log.open("a") as file:
            file.write(f"{os.getpid()}\n")
        while not killed.exists():
            time.sleep(0.01)
        return number * 10

    def kill() -> None:
        while not log.exists() or len(log.read_text().splitlines()) < 4:
            time.sleep(0.01)
        pids = {int(line) for line in log.read_text().splitlines()}
        victim = next(node for node in cluster.nodes if pids & _pids_of(node))
        for pid in _pids_of(victim):
            psutil.Process(pid).kill()
        cluster.kill_node(victim)
        cluster.add_node()
        killed.touch()

    flow = trek.Flow("killed")
    total = flow.step(
        lambda *numbers: sum(numbers), *(flow.step(slow, n, name=f"slow{n}", cpus=2) for n in range(4)), name="sum"
    )
    killer = threading.Thread(target=kill)
    killer.start()
    run = _run(flow, engine="ray")
    killer.join()
    assert run[total] == 60
    assert set(run.states().values()) == {"done"}
    assert len(log.read_text().splitlines()) > 4, "nothing ran again, so nothing was killed"


def _pids_of(node: Any) -> set[int]:
    (raylet,) = node.all_processes["raylet"]
    return {one.pid for one in psutil.Process(raylet.process.pid).children(recursive=True)}
