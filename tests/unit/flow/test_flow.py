"""Defining flows."""

from __future__ import annotations

from typing import Any

import pytest

from trek.errors import InputError
from trek.flow import Flow
from trek.flow.graph import descendants, input_ancestors
from trek.flow.run import complete_params
from trek.flow.run_plan import make_plan, share_threads


def one() -> int:
    return 1


def add(*numbers: int) -> int:
    return sum(numbers)


def test_a_new_flow_of_the_same_name_holds_nothing_of_another() -> None:
    first = Flow("same")
    first.step(one)
    first.param("lr", 0.1)
    second = Flow("same")
    assert second.steps == []
    assert second.params == {}


def test_dependencies_are_by_data_and_by_order() -> None:
    flow = Flow("f")
    a, b = flow.step(one), flow.step(one)
    c = flow.step(add, [a, {"deep": (b,)}])
    d = flow.command("show", ["echo", c.path], after=[a])
    assert [step.name for step in c.step.upstream()] == ["one", "one_2"]
    assert [step.name for step in d.step.upstream()] == ["add", "one"]


def test_several_outputs_unpack_and_one_says_how() -> None:
    flow = Flow("f")
    first, second = flow.step(one, outputs=2)
    assert (first.name, second.name) == ("one.0", "one.1")
    with pytest.raises(InputError, match="outputs=2"):
        _, _ = flow.step(one)


def test_a_map_has_a_step_for_each_item() -> None:
    flow = Flow("f")
    outputs = flow.map(add, [1, 2, 3], retries=2)
    assert [output.step.name for output in outputs] == ["add[0]", "add[1]", "add[2]"]
    assert flow.step(add, *outputs).step.upstream() == [output.step for output in outputs]


def test_a_map_over_an_output_is_one_step_until_it_runs() -> None:
    flow = Flow("f")
    items = flow.step(one)
    output = flow.map(add, items, retries=2, b=3)
    assert (output.step.name, output.step.settings.retries) == ("add", 2)
    assert output.step.upstream() == [items.step]


def test_an_experiment_step_takes_paths_outputs_and_parameters() -> None:
    flow = Flow("f")
    data, lr = flow.step(one), flow.param("lr", 0.1)
    model = flow.experiment("adaptive.yaml", ".", overrides={"data.folder": data.path, "hyperparameters.lr": lr})
    assert model.step.name == "adaptive"
    assert model.step.upstream() == [data.step]


def test_ancestors_and_descendants() -> None:
    flow = Flow("f")
    a = flow.step(one, name="a")
    b = flow.step(add, a, name="b")
    flow.step(one, name="c")
    d = flow.step(add, b, name="d")
    e = flow.step(add, d, name="e", after=[flow.step(one, name="before")])
    assert {step.name for step in input_ancestors(e.step)} == {"a", "b", "d", "e"}
    assert {step.name for step in descendants([a.step], among=flow.steps)} == {"a", "b", "d", "e"}


def _takes_from_another(flow: Flow) -> Any:
    return flow.step(add, Flow("other").step(one))


@pytest.mark.parametrize(
    ("define", "message"),
    [
        (lambda flow: flow.step(3), "needs a function, got 3"),
        (lambda flow: flow.step(one, outputs=0), "outputs must be at least 1"),
        (lambda flow: flow.step(one, retries=-1), "at least 0, got -1"),
        (lambda flow: flow.step(one, timeout_s=0), "above 0, got 0"),
        (lambda flow: flow.step(one, workers=0), "workers must be at least 1"),
        (lambda flow: flow.step(one, handover="mail"), "'disk' or 'memory', got 'mail'"),
        (lambda flow: flow.step(one, after=["one"]), "after= takes steps"),
        (lambda flow: flow.command("x", "ls -l"), "must be a list of words"),
        (lambda flow: flow.command("x", ["ls"], outputs="a.txt"), "list of file names"),
        (lambda flow: flow.script("x.py", launcher="moon"), "'trek', 'mpirun' or 'srun', got 'moon'"),
        (lambda flow: flow.command("x", ["ls"], retrys=3), "no setting 'retrys'"),
        (lambda flow: flow.service("x", ["ls"], ready=None), "ready must be a port or a URL, got None"),
        (lambda flow: flow.param("lr", None), "needs a str, int, float or bool"),
        (lambda flow: [flow.param("lr", 1), flow.param("lr", 2)], "defined twice"),
        (lambda flow: Flow("a/b"), "must consist of letters"),
        (_takes_from_another, "belongs to another flow"),
    ],
)
def test_a_mistake_in_a_definition_is_named(define: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        define(Flow("f"))


def test_parameters_are_typed() -> None:
    flow = Flow("f")
    lr, on = flow.param("lr", 0.1), flow.param("on", False)
    assert (lr.parse("0.5"), on.parse("yes")) == (0.5, True)
    assert complete_params(flow, {"lr": 1}) == {"lr": 1.0, "on": False}
    with pytest.raises(InputError, match="'lr' must be of type float, got 'fast'"):
        lr.parse("fast")
    with pytest.raises(InputError, match="'on' must be of type bool, got 1"):
        complete_params(flow, {"on": 1})
    with pytest.raises(InputError, match="no parameter 'rl'"):
        complete_params(flow, {"rl": 1})


def test_steps_that_may_run_side_by_side_share_the_cores() -> None:
    flow = Flow("f")
    raw = flow.step(one, name="raw")
    parts = flow.map(add, [1, 2, 3], after=[raw])
    many = flow.map(add, raw, name="many", after=parts)
    flow.step(add, many, name="last")
    plan = make_plan(flow, parallel=4, force=False, from_step=None, only=None)
    shared = {step.name: num for step, num in share_threads(plan, num_cores=12).items()}
    assert shared == {"raw": 12, "add[0]": 4, "add[1]": 4, "add[2]": 4, "many": 3, "last": 12}


def test_a_plan_that_cannot_be_is_refused() -> None:
    flow = Flow("f")
    with pytest.raises(InputError, match="has no steps"):
        make_plan(flow, parallel=1, force=False, from_step=None, only=None)
    flow.step(one)
    with pytest.raises(InputError, match="no step 'two'"):
        make_plan(flow, parallel=1, force=False, from_step="two", only=None)
    with pytest.raises(InputError, match="exclude each other"):
        make_plan(flow, parallel=1, force=False, from_step="one", only="one")
    with pytest.raises(InputError, match="at least 1, got 0"):
        make_plan(flow, parallel=0, force=False, from_step=None, only=None)
