"""Which steps of a flow run, in which order: conditions and joins, `only`, small steps beside large ones."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

import trek
from trek.errors import InputError


def both(*values: Any) -> list[Any]:
    return list(values)


def _branches(flow: trek.Flow) -> tuple[Any, Any, Any]:
    n = flow.param("n", 10)
    is_big = flow.step(lambda n: n > 5, n, name="is_big")
    is_small = flow.step(lambda n: not n > 5, n, name="is_small")
    big = flow.step(lambda: "big model", when=is_big, name="big")
    small = flow.step(lambda: "small model", when=is_small, name="small")
    return n, big, small


@pytest.mark.parametrize(("n", "expected"), [(10, ["big model", None]), (1, [None, "small model"])])
def test_a_join_runs_with_the_branch_that_was_taken(n: int, expected: list[Any]) -> None:
    """A step behind an if and its else was always skipped, since one of them is."""
    flow = trek.Flow("join")
    _, big, small = _branches(flow)
    joined = flow.step(both, big, small)
    in_a_list = flow.step(lambda models, *, best: [models, best], [big, small], best=big)
    command = flow.command("told", ["python", "-c", "import sys; print(sys.argv[1:])", big.path, small.path])
    flow.step(lambda: 1, after=[big, small], name="afterwards")
    flow.step(both, joined, in_a_list, command, name="last")
    run = flow.run(show=False, params={"n": n})
    assert run[joined] == expected
    assert run[in_a_list] == [expected, expected[0]]
    states = run.states()
    assert (states["told"], states["afterwards"], states["last"]) == ("done", "done", "done")
    assert {states["big"], states["small"]} == {"done", "skipped"}
    with pytest.raises(InputError, match="was skipped"):
        run[small if n == 10 else big]


def test_a_step_that_needs_a_skipped_one_is_skipped() -> None:
    flow = trek.Flow("needs")
    table = flow.step(lambda: 1, name="table")
    extra = flow.step(lambda: 2, when=False, name="extra")
    other = flow.step(lambda: 3, when=False, name="other")
    flow.step(both, table, extra, name="needs_it")
    flow.step(both, flow.step(both, extra, name="behind"), other, name="no_branch")
    states = flow.run(show=False).states()
    assert {name for name, state in states.items() if state == "skipped"} == set(states) - {"table"}


def test_only_runs_what_leaves_no_result_and_no_step_that_is_only_waited_for(tmp_path: Path) -> None:
    """It refused steps behind a command, and behind steps whose results live in memory, even after a whole run."""
    import numpy as np

    log = tmp_path / "log"

    def note(name: str) -> Any:
        with log.open("a") as file:
            file.write(f"{name}\n")
        return np.ones(3)

    flow = trek.Flow("only")
    setup = flow.command("setup", ["touch", str(tmp_path / "setup")])
    source = flow.step(note, "source", name="source")
    table = flow.step(lambda x, name: note(name), source, "table", name="table")
    flow.step(lambda x: float(x.sum()), table, handover="memory", after=[setup], name="train")
    flow.run(show=False)
    (tmp_path / "setup").unlink()
    log.unlink()
    run = flow.run(show=False, only="train")
    assert run.states() == {"source": "cached", "table": "done", "train": "done"}
    assert log.read_text() == "table\n"
    assert not (tmp_path / "setup").exists()


def test_small_steps_run_while_a_large_one_waits(tmp_path: Path) -> None:
    """A step for two processes that waits for two free slots kept the second slot empty."""

    def wait_for(name: str) -> None:
        while not (tmp_path / name).exists():
            time.sleep(0.01)

    flow = trek.Flow("passing")
    flow.step(wait_for, "small", timeout_s=240)
    flow.step(lambda: 1, workers=2, name="large")
    flow.step(lambda: (tmp_path / "small").touch(), name="small")
    assert set(flow.run(show=False, parallel=2).states().values()) == {"done"}
    assert os.path.exists(tmp_path / "small")
