"""What a run would do, without running it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trek
from trek.errors import InputError
from trek.flow.artefacts import store_value
from trek.flow.dry_run import describe
from trek.flow.flow_store import FlowStore
from trek.flow.graph import MapWork, Output
from trek.flow.keys import Keymaker, make_key
from trek.flow.run import complete_params


def add(a: Any, b: Any = 0) -> Any:
    return a


def _pretend(flow: trek.Flow, home: Path, results: dict[str, Any]) -> None:
    """Record results as a run would have."""
    store = FlowStore(flow.name, home=home)
    stored: dict[Any, Any] = {}
    keys = Keymaker(complete_params(flow, {}), stored, home=home)
    for step in flow.steps:
        if step.name in results and not isinstance(step.work, MapWork):
            components = keys.components(step)
            stored[Output(step)] = store_value(results[step.name], home / "attempt")
            store.save_result("run", make_key(components), [stored[Output(step)]])
            store.save_components(step.name, components)
    store.close()


def _actions(flow: trek.Flow, **settings: Any) -> dict[str, tuple[str, str]]:
    return {one.name: (one.action, one.reason) for one in flow.dry_run(**settings)}


def test_it_says_what_would_run_and_why(home: Path) -> None:
    flow = trek.Flow("dry")
    lr = flow.param("lr", 1)
    a = flow.step(add, 1, name="a")
    b = flow.step(add, a, b=lr, name="b")
    flow.step(add, b, name="c")
    flow.step(add, 7, when=a, name="d")
    flow.step(add, 1, when=False, name="e")
    flow.command("f", ["true"])
    flow.map(add, a, name="g")
    assert _actions(flow)["b"] == ("depends", "runs if what a gives has changed")
    assert not (home / "flows").exists(), "nothing is recorded"
    _pretend(flow, home, {"a": [8, 9], "b": 5})
    assert _actions(flow, params={"lr": 2}) == {
        "a": ("keep", "nothing changed"),
        "b": ("run", "argument b changed"),
        "c": ("depends", "runs if what b gives has changed"),
        "d": ("run", "it has not succeeded before"),
        "e": ("skip", "its condition is not met"),
        "f": ("run", "its result is not kept"),
        "g": ("run", "2 of 2 items: it has not succeeded before"),
    }
    assert _actions(flow, from_step="b")["c"] == ("run", "it was asked for")
    assert _actions(flow, only="b") == {"a": ("keep", "nothing changed"), "b": ("run", "it was asked for")}
    with pytest.raises(InputError, match="step 'b' must run before"):
        _actions(flow, only="c", params={"lr": 2})
    text = describe(flow.dry_run(params={"lr": 2}))
    assert "▶ b: would run (argument b changed)" in text.splitlines()
    assert text.splitlines()[-1] == "4 of 7 steps would run, 1 depend on what others give."


@settings(max_examples=40)
@given(st.lists(st.lists(st.integers(0, 7), max_size=2), min_size=1, max_size=8), st.sets(st.integers(0, 7)))
def test_a_step_behind_one_that_runs_is_never_said_to_be_kept(graph: list[list[int]], kept: set[int]) -> None:
    flow = trek.Flow("random")
    outputs: list[Any] = []
    for number, inputs in enumerate(graph):
        taken = [outputs[one] for one in inputs if one < len(outputs)]
        outputs.append(flow.step(add, number, taken, name=str(number)))
    known: dict[str, Any] = {}
    for step in flow.steps:  # a result can be kept only if those of its inputs were
        if int(step.name) in kept and all(one.step.name in known for one in step.inputs()):
            known[step.name] = 1
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TREK_HOME", name)
        _pretend(flow, Path(name), known)
        actions = _actions(flow)
    for step in flow.steps:
        runs_before = [one.step.name for one in step.inputs() if actions[one.step.name][0] != "keep"]
        expected = "depends" if runs_before else "keep" if step.name in known else "run"
        assert actions[step.name][0] == expected
