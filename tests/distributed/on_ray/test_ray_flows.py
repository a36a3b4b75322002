"""Flows on a real Ray cluster: steps run on its nodes, artefacts come home, keys are those of local runs."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'trek-ml[ray]'")

import trek
from trek.engines.ray.ray_member import RayMember
from trek.errors import TrainingError
from trek.flow import OUTPUT_DIR, Run, scratch
from trek.testing.ray_cluster import RayCluster
from trek.testing.recorded_gang import wait_for

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
def test_a_node_killed_during_a_flow_costs_only_what_ran_there(
    cluster: RayCluster, large_node: int, tmp_path: Path
) -> None:
    """No other node has room for the steps, of which two run on each of two."""
    victim = cluster.add_node(cpus=large_node)
    log, killed = tmp_path / "log", tmp_path / "killed"

    def slow(number: int) -> int:
        with log.open("a") as file:
            file.write(f"{os.getpid()}\n")
        while not killed.exists():
            time.sleep(0.01)
        return number * 10

    flow = trek.Flow("killed")
    total = flow.step(
        lambda *numbers: sum(numbers),
        *(flow.step(slow, n, name=f"slow{n}", cpus=large_node / 2) for n in range(4)),
        name="sum",
    )
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(_run, flow, engine="ray")
        try:
            wait_for(lambda: running.done() or (log.exists() and len(log.read_text().splitlines()) == 4))
            cluster.kill_node(victim, with_workers=True)
            other = cluster.add_node(cpus=large_node)  # not in a thread: Ray sets a handler of a signal for it
        finally:
            killed.touch()  # or steps would wait for ever for a kill that failed
        run = running.result()
    cluster.kill_node(other)
    assert run[total] == 60
    assert set(run.states().values()) == {"done"}
    assert len(log.read_text().splitlines()) == 6, "two ran on the node that was killed"


def test_outputs_that_were_lost_before_they_came_home_are_made_again(
    cluster: RayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node dies after the step has ended well, and before its large output was read from there."""
    began = tmp_path / "began"
    nodes = {node.node_ip_address: node for node in (cluster.add_node(cpus=11), cluster.add_node(cpus=11))}
    fetch = RayMember._fetch

    def fetch_too_late(self: RayMember, name: str) -> None:
        if len(nodes) == 2:
            cluster.kill_node(nodes.pop(began.read_text().strip()), with_workers=True)
        fetch(self, name)

    def make() -> np.ndarray:
        with began.open("a") as file:
            file.write(f"{os.environ['MASTER_ADDR']}\n")
        return np.arange(400_000)

    monkeypatch.setattr(RayMember, "_fetch", fetch_too_late)
    flow = trek.Flow("late")
    made = flow.step(make, cpus=11)  # no other node has room for it
    run = _run(flow, engine="ray")
    (other,) = nodes.values()
    cluster.kill_node(other)
    assert run[made].tolist() == list(range(400_000))
    assert len(set(began.read_text().splitlines())) == 2
