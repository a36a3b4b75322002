"""Flows from files."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trek.errors import ConfigError, InputError, TrainingError
from trek.flow.flow import Flow
from trek.flow.graph import CommandWork, MapWork, ServiceWork, substitute
from trek.flow.loading import load_flow
from trek.flow.parameters import Param
from trek.flow.yaml_flow import _Reader


@pytest.fixture(autouse=True)
def _clean_modules() -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.endswith("_under_test"):
            del sys.modules[name]


def _file(folder: Path, text: str, name: str = "flow_under_test.py") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


SIMPLE = "import trek\nflow = trek.Flow('simple')\nflow.step(len, [1])\n"


def test_the_flow_of_a_file_is_found_with_its_source(tmp_path: Path) -> None:
    path = _file(tmp_path, SIMPLE)
    flow = load_flow(path)
    assert (flow.name, flow.source) == ("simple", path)


def test_a_file_that_runs_its_flow_is_only_read(tmp_path: Path) -> None:
    flow = load_flow(_file(tmp_path, SIMPLE + "flow.run()\nraise SystemExit('went on')\n"))
    assert len(flow.steps) == 1
    assert not Flow.is_being_read


def test_one_of_several_flows_is_chosen_by_its_variable(tmp_path: Path) -> None:
    path = _file(tmp_path, SIMPLE + "other = trek.Flow('other')\n")
    assert load_flow(f"{path}:other").name == "other"
    with pytest.raises(InputError, match="defines 2 flows"):
        load_flow(path)
    with pytest.raises(InputError, match="no flow called 'third'"):
        load_flow(f"{path}:third")


def test_a_file_without_a_flow_or_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="defines 0 flows"):
        load_flow(_file(tmp_path, "x = 1\n"))
    with pytest.raises(InputError, match="does not exist"):
        load_flow("missing.py")


def test_a_file_that_raises_shows_its_own_frames(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="failed while its flow was read") as error:
        load_flow(_file(tmp_path, "def f():\n    return 1 / 0\nf()\n"))
    assert "in f" in error.value.traceback_text
    assert "importlib" not in error.value.traceback_text
    assert not Flow.is_being_read


YAML = """
name: from-yaml
params: {lr: 0.1}
steps:
  make: {python: "steps_under_test:make", kwargs: {lr: "${lr}"}, outputs: 2, retries: 3}
  train: {script: train.py, args: ["--data", "${make.1.path}"], workers: 2, outputs: [model.pt]}
  show: {command: [cat, "${train.path}"], after: [make], env: {LEVEL: "3"}}
  each: {python: "steps_under_test:make", map: "${make.0}", kwargs: {lr: 1}}
  search: {experiment: adaptive.yaml, folder: model, overrides: {hyperparameters.lr: "${lr}"}}
  serve: {service: [python, serve.py, "${search.path}"], ready: 8080, detach: true}
"""


def test_yaml_describes_the_same_graph(tmp_path: Path) -> None:
    _file(tmp_path, "def make(lr):\n    return 1, 2\n", "steps_under_test.py")
    flow = load_flow(_file(tmp_path, YAML, "flow.yaml"))
    make, train, show, each, search, serve = flow.steps
    assert flow.name == "from-yaml"
    assert (make.num_outputs, make.settings.retries, train.settings.workers) == (2, 3, 2)
    assert [step.name for step in show.upstream()] == ["train", "make"]
    assert isinstance(show.work, CommandWork)
    assert isinstance(each.work, MapWork)
    assert [step.upstream() for step in (each, search, serve)] == [[make], [], [search]]
    assert isinstance(serve.work, ServiceWork)
    assert (serve.work.ready, serve.work.is_detached) == (8080, True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("steps: [1]", "needs a mapping called 'steps'"),
        ("step: {}\nsteps: {}", "'step' is not a known key"),
        ("steps: {a: {}}", "needs one of python, script, command"),
        ("steps: {a: {command: [ls], speed: 3}}", "unknown key 'speed'"),
        ("steps: {a: {command: [ls, '${b}']}}", "refers to 'b', which is not an earlier step"),
        ("steps: {a: {python: 'nowhere_at_all:f'}}", "cannot be loaded"),
        ("steps: {a: {service: [ls]}}", "step 'a': .*'ready'"),
        ("a: [", "flow.yaml:1: invalid YAML"),
    ],
)
def test_a_mistake_in_yaml_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_flow(_file(tmp_path, text, "flow.yaml"))


TEXTS = """
params: {lr: 0.1, name: x}
steps:
  two: {command: [echo], outputs: [a, b]}
  a: {command: [echo, %s]}
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"lr=${lr}"', "lr=0.1"),
        ('"--${name}=${lr}!"', "--x=0.1!"),
        ('"${lr}${lr}"', "0.10.1"),
        ('"${two.0.path}/x"', "PATH/x"),
        ('"$${lr}"', "${lr}"),
        ('"$${lr} ${lr} $$"', "${lr} 0.1 $$"),
        ('"$x {y} $(z) $"', "$x {y} $(z) $"),
        ('"${lr}"', 0.1),
    ],
)
def test_references_inside_texts_are_replaced(tmp_path: Path, text: str, expected: Any) -> None:
    """`lr=${lr}` reached the command as it is written."""
    flow = load_flow(_file(tmp_path, TEXTS % text, "flow.yaml"))
    step = flow.find("a")
    values = {"lr": 0.1, "name": "x"}
    found = substitute(step.values(), lambda one: values[one.name] if isinstance(one, Param) else "PATH")
    assert found["argv"][1] == expected
    assert [up.name for up in step.upstream()] == (["two"] if "two" in text else [])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('"lr=${lrr}"', r"'lrr', which is not an earlier step or a parameter.*write \$\$"),
        ('"x ${lr.path}"', "'lr' has no path"),
        ('"x ${two.5}"', "'two' has 2 output"),
        ('"x ${two}"', "Name one of them"),
        ('"x ${a b}"', "is not a reference"),
    ],
)
def test_a_wrong_reference_inside_a_text_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_flow(_file(tmp_path, TEXTS % text, "flow.yaml"))


@given(
    st.lists(
        st.one_of(
            st.text("ab$ =:/", max_size=6).filter(lambda text: not text.endswith("$")),
            st.sampled_from(["${lr}", "${name}", "$${"]),
        ),
        max_size=6,
    )
)
def test_any_mixture_of_text_and_references_reads_as_written(parts: list[str]) -> None:
    reader = _Reader(Path("f.yaml"), {"steps": {}, "params": {"lr": 0.1, "name": "x"}})
    reader.read()
    found = substitute(reader._resolve("".join(parts), "a"), lambda one: {"lr": 0.1, "name": "x"}[one.name])
    assert str(found) == "".join({"${lr}": "0.1", "${name}": "x", "$${": "${"}.get(part, part) for part in parts)
