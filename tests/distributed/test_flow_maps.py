"""Steps of a flow that are run for each item of a list."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import trek
from trek.errors import TrainingError
from trek.flow.flow_store import FlowStore
from trek.testing.flow_steps import add, num_lines, one, run_flow


def test_a_wide_map_is_collected() -> None:
    flow = trek.Flow("wide")
    squares = flow.map(lambda x: x * x, range(1000), name="square")
    total = flow.step(sum, squares)
    assert run_flow(flow)[total] == sum(x * x for x in range(1000))


def test_a_map_over_an_output_has_as_many_parts_as_the_list_then_has(tmp_path: Path) -> None:
    log = tmp_path / "log"

    def square(x: int, log: str, offset: int = 0) -> int:
        with open(log, "a") as file:
            file.write(f"{x}\n")
        return x * x + offset

    flow = trek.Flow("dynamic")
    size = flow.param("size", 3)
    items = flow.step(lambda n: list(range(n)), size, name="items")
    squares = flow.map(square, items, log=str(log), offset=flow.step(add, 1))
    total = flow.step(sum, squares)
    run = run_flow(flow)
    assert (run[squares], run[total]) == ([1, 2, 5], 8)
    assert run.states()["square[2]"] == run.states()["square"] == "done"
    longer = run_flow(flow, params={"size": 4})
    assert longer[total] == 18
    assert (longer.states()["square[2]"], longer.states()["square[3]"]) == ("cached", "done")
    assert num_lines(log) == 4
    assert run_flow(flow, params={"size": 0})[total] == 0


def test_a_part_that_fails_blocks_what_needs_the_map_and_a_resume_does_only_that_part(tmp_path: Path) -> None:
    switch, log = tmp_path / "switch", tmp_path / "log"

    def pick(x: int, switch: str, log: str) -> int:
        if x == 1 and not os.path.exists(switch):
            raise ValueError("not yet")
        with open(log, "a") as file:
            file.write(f"{x}\n")
        return x

    flow = trek.Flow("parts")
    picked = flow.map(pick, flow.step(lambda: [0, 1, 2]), switch=str(switch), log=str(log), cache=False)
    total = flow.step(sum, picked)
    with pytest.raises(TrainingError, match=r"step 'pick\[1\]' failed: ValueError: not yet"):
        run_flow(flow)
    switch.touch()
    store = FlowStore("parts", home=Path(os.environ["TREK_HOME"]))
    failed = store.find_run(None).id
    store.close()
    assert run_flow(flow, resume=failed)[total] == 3
    assert sorted(log.read_text().split()) == ["0", "1", "2"]


def test_a_map_over_what_is_no_list_fails_while_other_branches_finish(tmp_path: Path) -> None:
    log = tmp_path / "log"
    flow = trek.Flow("no-list")
    flow.map(add, flow.step(add, 1), name="each")
    flow.step(one, str(log))
    with pytest.raises(TrainingError, match=r"step 'each' failed: expected a list to map over, got a int\."):
        run_flow(flow)
    assert num_lines(log) == 1
