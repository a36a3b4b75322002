"""Nodes killed during flows, by seed: `make campaign ARGS="-k ray_flow"`.

Steps run on two nodes alone, one of which dies, since no other has room for one. Every step writes down where it began
and where it ended. With the records of the flow that is the ledger: each result once, no step again that had ended
before the kill, none twice on a node that lived, and the values and keys of local execution.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trek
from trek.flow import Run
from trek.flow.flow_store import FlowStore
from trek.testing.node_kills import DoomedNodes, NodeKill
from trek.testing.ray_cluster import RayCluster

NUM_SEEDS = 100
NAME = "killed"
NUM_PARTS = 3
NUM_STEPS = NUM_PARTS + 2 + 1
STEP_CPUS = 5
"""Two steps on each of the large nodes, and none on another."""


LEDGER = "FLOW_LEDGER"
"""The variable that tells steps where their ledger is: the path in a function would be a part of its key."""


def write(what: str, step: str) -> None:
    """In a step; its node has an address of its own."""
    with Path(os.environ[LEDGER]).open("a") as file:
        file.write(f"{what} {step} {os.environ.get('MASTER_ADDR', 'here')}\n")


@dataclass(frozen=True)
class Ledger:
    """Lines of what began and ended where: `began make-0 127.0.0.6`."""

    path: Path

    def lines(self) -> list[list[str]]:
        return [line.split() for line in self.path.read_text().splitlines()] if self.path.exists() else []

    def num_lines(self) -> int:
        return len(self.lines())

    def began(self) -> Counter[tuple[str, str]]:
        """How often each step began on which node."""
        return Counter((step, address) for what, step, address in self.lines() if what == "began")


def _flow() -> tuple[trek.Flow, Any]:
    """Large results, which are fetched from the node in parts, medium ones, and a number."""

    def recorded(name: str, compute: Callable[..., Any]) -> Callable[..., Any]:
        def run(*values: Any) -> Any:
            write("began", name)
            time.sleep(0.3)
            made = compute(*values)
            write("ended", name)
            return made

        return run

    flow = trek.Flow(NAME)

    def step(name: str, compute: Callable[..., Any], *inputs: Any) -> Any:
        return flow.step(recorded(name, compute), *inputs, name=name, cpus=STEP_CPUS)

    parts = [step(f"make-{n}", lambda n: np.random.default_rng(n).random(300_000), n) for n in range(NUM_PARTS)]
    pairs = [step(f"add-{n}", lambda a, b: (a + b)[::10], parts[n], parts[n + 1]) for n in range(2)]
    return flow, step("total", lambda *pairs: float(sum(pair.sum() for pair in pairs)), *pairs)


@dataclass(frozen=True)
class Expected:
    """What local execution gives."""

    total: float
    keys: dict[str, str]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Expected:
    folder = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TREK_HOME", str(folder))
        patch.setenv(LEDGER, str(folder / "ledger"))
        flow, total = _flow()
        run = flow.run(show=False, parallel=2)
    return Expected(run[total], _keys(folder))


def _keys(home: Path) -> dict[str, str]:
    """The keys under which the results of the newest run are stored, each of them once."""
    with sqlite3.connect(home / "flows" / NAME / "flow.db") as records:
        stored = [key for (key,) in records.execute("select key from results")]
    records.close()
    found = {row.name: str(row.key) for row in _steps(home)}
    assert sorted(found.values()) == sorted(stored)
    return found


def _steps(home: Path) -> Any:
    store = FlowStore(NAME, home=home)
    try:
        return store.steps(store.runs()[-1].id)
    finally:
        store.close()


def _done(home: Path) -> set[str]:
    return {row.name for row in _steps(home) if row.state == "done"}


@pytest.mark.campaign
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(NUM_SEEDS))
def test_a_flow_loses_nothing_and_does_nothing_twice_whichever_node_is_killed_when(
    cluster: RayCluster,
    large_node: int,
    expected: Expected,
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
    seed: int,
) -> None:
    """The seed chooses after how many lines of the ledger a node dies, and how long after that."""
    ledger, done = Ledger(tmp_path / "ledger"), set[str]()
    monkeypatch.setenv(LEDGER, str(ledger.path))
    flow, total = _flow()
    kill = NodeKill.drawn(seed, num_nodes=1, max_progress=2 * NUM_STEPS - 1, max_delay_s=1.0)
    nodes = DoomedNodes(cluster, kill, num_nodes=1, cpus=large_node)
    with cluster.leaving_nothing(), nodes, ThreadPoolExecutor(1) as pool:
        running = pool.submit(flow.run, show=False, parallel=4, engine="ray")
        nodes.strike(ledger.num_lines, is_over=running.done, before=lambda: done.update(_done(home)))
        run: Run = running.result()
    record_property("num_steps_again", ledger.began().total() - NUM_STEPS)
    assert run[total] == expected.total
    assert set(run.states().values()) == {"done"}
    assert _keys(home) == expected.keys
    _check(ledger.began(), done=done, victim=nodes.victim_address)
    assert not (home / "flows" / NAME / "runs" / run.id / "attempts").exists()


def _check(began: Counter[tuple[str, str]], *, done: set[str], victim: str) -> None:
    assert len({step for step, _ in began}) == NUM_STEPS
    for step in {step for step, _ in began}:
        on_victim = began[step, victim]
        elsewhere = sum(count for (name, address), count in began.items() if name == step and address != victim)
        assert on_victim <= 1 and elsewhere <= 1, f"{step} began {began}"  # noqa: PT018 - one statement about both
        assert step not in done or on_victim + elsewhere == 1, f"{step} had ended, and began {began}"
