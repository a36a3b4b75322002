"""Flows run with real worker processes: values, what is kept, and what runs beside what."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trek
from trek.errors import InputError
from trek.flow.cleaning import clean_flow
from trek.flow.flow_store import FlowStore
from trek.testing.flow_steps import add, num_lines, one, run_flow


def test_values_go_from_step_to_step(tmp_path: Path) -> None:
    def pair(x: int) -> tuple[int, list[int]]:
        return x, [x]

    flow = trek.Flow("values")
    first, second = flow.step(pair, flow.step(add, 2, b=3), outputs=2)
    total = flow.step(lambda a, b: a + b[0], first, second)
    run = run_flow(flow)
    assert run[total] == 10
    assert set(run.states().values()) == {"done"}
    assert json.loads(run.path(total).read_text()) == 10


def test_what_has_not_changed_is_not_run_again(tmp_path: Path) -> None:
    log = tmp_path / "log"
    flow = trek.Flow("kept")
    lr = flow.param("lr", 1)
    b = flow.step(add, flow.step(one, str(log)), b=lr)
    assert run_flow(flow)[b] == 2
    again = run_flow(flow)
    assert again.states() == {"one": "cached", "add": "cached"}
    changed = run_flow(flow, params={"lr": 5})
    assert changed[b] == 6
    assert changed.states() == {"one": "cached", "add": "done"}
    assert changed.reasons()["add"] == "argument b changed"
    assert num_lines(log) == 1


def test_force_from_and_only_choose_what_is_run(tmp_path: Path) -> None:
    log = tmp_path / "log"
    flow = trek.Flow("chosen")
    a = flow.step(one, str(log), name="a")
    b = flow.step(add, a, name="b")
    flow.step(add, b, name="c")
    flow.step(add, 7, name="d")
    with pytest.raises(InputError, match="step 'a' must run before --only"):
        run_flow(flow, only="b")
    run_flow(flow)
    assert run_flow(flow, only="b").states() == {"a": "cached", "b": "done"}
    assert run_flow(flow, from_step="b").states() == {"a": "cached", "b": "done", "c": "done", "d": "cached"}
    run_flow(flow, force=True)
    assert num_lines(log) == 2


def test_a_kept_output_that_was_truncated_is_made_again() -> None:
    def make() -> np.ndarray:
        return np.arange(1000)

    flow = trek.Flow("truncated")
    array = flow.step(make)
    path = run_flow(flow).path(array)
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:100])
    run = run_flow(flow)
    assert run.states() == {"make": "done"}
    assert "100 bytes instead of" in str(run.reasons()["make"])
    assert run[array].sum() == 499500


def test_a_changed_input_file_is_never_trained_on_stale(tmp_path: Path) -> None:
    raw = tmp_path / "raw.csv"
    raw.write_text("1\n2\n")

    def prepare(path: Path) -> int:
        return sum(map(int, path.read_text().split()))

    flow = trek.Flow("stale")
    total = flow.step(prepare, raw)
    assert run_flow(flow)[total] == 3
    raw.write_text("1\n5\n")
    assert run_flow(flow)[total] == 6


def test_several_ranks_perform_a_step_together() -> None:
    def together(base: int) -> list[int]:
        from trek.world import World

        world = World.from_env()
        print(f"rank {world.rank} of {world.size}")
        return [base, world.rank, world.size]

    flow = trek.Flow("ranks")
    out = flow.step(together, flow.step(add, 1), workers=2)
    run = run_flow(flow)
    assert run[out] == [1, 0, 2]
    log = Path(os.environ["TREK_HOME"]) / "flows" / "ranks" / "runs" / run.id / "logs" / "together.log"
    assert sorted(log.read_text().splitlines()) == ["[rank 0] rank 0 of 2", "[rank 1] rank 1 of 2"]


def test_threads_of_a_step_are_its_share_of_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    flow = trek.Flow("threads")
    seen = flow.step(lambda: os.environ["OMP_NUM_THREADS"], cache=False)
    own = flow.step(lambda: os.environ["OMP_NUM_THREADS"], env={"OMP_NUM_THREADS": "7"}, cache=False)
    cores = len(os.sched_getaffinity(0))
    assert (run_flow(flow)[seen], run_flow(flow)[own]) == (str(max(cores // 2, 1)), "7")
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert run_flow(flow)[seen] == "5"


def test_a_condition_that_is_not_met_skips_the_step_and_what_needs_it() -> None:
    flow = trek.Flow("conditions")
    good = flow.step(lambda x: x > 3, flow.step(add, 1, 1))
    publish = flow.step(add, 1, when=good, name="publish")
    flow.step(add, publish, name="tell")
    assert run_flow(flow).states() == {"add": "done", "step": "done", "publish": "skipped", "tell": "skipped"}


def test_independent_branches_run_side_by_side(tmp_path: Path) -> None:
    def meet(mine: str, other: str) -> None:
        Path(mine).touch()
        deadline = time.monotonic() + 240
        while not os.path.exists(other):
            assert time.monotonic() < deadline, "the other branch did not run meanwhile"
            time.sleep(0.01)

    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    flow = trek.Flow("branches")
    flow.step(meet, a, b)
    flow.step(meet, b, a)
    run_flow(flow)


def test_two_runs_at_the_same_time_do_not_disturb_each_other() -> None:
    def make(seed: int) -> np.ndarray:
        time.sleep(0.05)
        return np.full(1000, seed)

    def build(run: int) -> tuple[trek.Flow, Any]:
        flow = trek.Flow("concurrent")
        arrays = [flow.step(make, seed) for seed in range(5)]
        return flow, flow.step(lambda *parts: int(sum(part.sum() for part in parts)) + 0 * run, *arrays)

    results: list[Any] = []

    def work(number: int) -> None:
        flow, total = build(number)
        results.append(run_flow(flow)[total])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [10000, 10000]


def test_a_run_that_goes_on_cannot_be_resumed_or_cleaned(tmp_path: Path) -> None:
    store = FlowStore("busy", home=Path(os.environ["TREK_HOME"]))
    run = store.begin_run(["one"], params={}, source=None, graph=[], resume=None)
    with pytest.raises(InputError, match="is running"):
        clean_flow("busy", home=store.home, keep_runs=0)
    store.close()
    flow = trek.Flow("busy")
    flow.step(one, str(tmp_path / "log"))
    with pytest.raises(InputError, match="still running"):
        run_flow(flow, resume=run)


def test_cleaning_removes_what_no_kept_run_used() -> None:
    flow = trek.Flow("cleaned")
    size = flow.param("size", 10)
    array = flow.step(np.arange, size)
    old = run_flow(flow).path(array)
    new = run_flow(flow, params={"size": 20})
    count, num_bytes = clean_flow("cleaned", home=Path(os.environ["TREK_HOME"]), keep_runs=1)
    assert (count, num_bytes > 0) == (1, True)
    assert not old.exists()
    assert new.path(array).exists()
