"""Data frames, bytes, and values made of parts of several kinds."""

from __future__ import annotations

import dataclasses
import tempfile
from collections import OrderedDict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trek.errors import InputError
from trek.flow import Flow
from trek.flow.artefacts import check_storable, kind_of, store_value
from trek.flow.loading import load_flow
from trek.flow.packing import check_sendable
from trek.testing.artefact_conformance import ArtefactConformance


@dataclasses.dataclass(frozen=True, slots=True)
class Metrics:
    name: str
    curve: Any
    parts: tuple[Any, ...] = ()
    late: int = dataclasses.field(default=0, init=False)


class Pair(NamedTuple):
    left: Any
    right: Any


def same(one: Any, other: Any) -> bool:
    """Equal in value and type; a mapped array counts as an array."""
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return isinstance(one, np.ndarray) and isinstance(other, np.ndarray) and np.array_equal(one, other)
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if dataclasses.is_dataclass(one):
        names = [field.name for field in dataclasses.fields(one)]
        return all(same(getattr(one, name), getattr(other, name)) for name in names)
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, pd.DataFrame | pl.DataFrame):
        return bool(one.equals(other))
    return bool(one == other)


class TestFrames(ArtefactConformance):
    """Of pandas."""

    kind = kind_of("frame")

    def make(self) -> Any:
        return pd.DataFrame(
            {"a": [1, 2], "b": ["x", None], "t": pd.to_datetime(["2020-01-01", None])}, index=["i", "j"]
        )

    def same(self, one: Any, other: Any) -> bool:
        pd.testing.assert_frame_equal(one, other)
        return True


class TestSeries(TestFrames):
    """One column of pandas, without a name."""

    def make(self) -> Any:
        return pd.Series(["a", "b", "a"], index=pd.Index([3, 1, 2], name="n"), dtype="category")

    def same(self, one: Any, other: Any) -> bool:
        pd.testing.assert_series_equal(one, other)
        return True


class TestPolars(TestFrames):
    """Of Polars."""

    def make(self) -> Any:
        return pl.DataFrame({"a": [1, None], "b": ["x", "y"], "c": [[1], []]})

    def same(self, one: Any, other: Any) -> bool:
        return bool(one.equals(other)) and one.schema == other.schema


class TestBytes(ArtefactConformance):
    """Bytes."""

    kind = kind_of("bytes")

    def make(self) -> Any:
        return b"\0\xff text"


class TestComposites(ArtefactConformance):
    """Everything in everything."""

    kind = kind_of("composite")

    def make(self) -> Any:
        metrics = Metrics("m", np.arange(3), (torch.ones(2), b"x"))
        object.__setattr__(metrics, "late", 7)
        return {0: metrics, "p": Pair(np.float32(1), [b"", {"deep": np.ones((2, 2))}]), "o": OrderedDict(a=b"", b=1)}

    def same(self, one: Any, other: Any) -> bool:
        return same(one, other)


LEAVES = st.one_of(
    st.none(), st.integers(), st.text(max_size=3), st.binary(max_size=4),
    st.integers(0, 5).map(lambda n: np.arange(n)), st.integers(0, 3).map(lambda n: torch.ones(n)),
    st.integers(1, 3).map(lambda n: pd.DataFrame({"a": range(n)})),
)  # fmt: skip
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.builds(Pair, inner, inner),
        st.builds(lambda value: Metrics("n", value), inner),
        st.dictionaries(st.one_of(st.integers(0, 3), st.text(max_size=2)), inner, max_size=3),
    ),
    max_leaves=8,
)


@settings(max_examples=150)
@given(VALUES)
def test_any_nesting_comes_back_and_has_one_digest(value: Any) -> None:
    with tempfile.TemporaryDirectory() as name:
        first, second = (store_value(value, Path(name, folder)) for folder in ("a", "b"))
        assert same(first.load(), value)
        assert first.digest == second.digest
        assert first.find_change() is None


def test_a_list_of_paths_is_taken_over_and_what_lies_elsewhere_is_watched(tmp_path: Path) -> None:
    """A list of Paths could not be returned."""
    attempt, elsewhere = tmp_path / "attempts" / "1", tmp_path / "elsewhere"
    (attempt / "scratch").mkdir(parents=True)
    made = [attempt / "scratch" / name for name in ("a", "b")]
    for path in (*made, elsewhere):
        path.write_text(path.name)
    stored = store_value([*made, made[0], {"x": elsewhere}], attempt / "output_0")
    first, second, again, rest = stored.load()
    assert [path.read_text() for path in (first, second, again)] == ["a", "b", "a"]
    assert first.is_relative_to(attempt / "output_0")
    assert rest == {"x": elsewhere}
    assert stored.find_change() is None
    elsewhere.write_text("changed")
    assert stored.find_change() is not None


def test_links_lead_to_the_same_contents_after_the_attempt_is_gone(tmp_path: Path) -> None:
    """A returned link, or one to an absolute path in a returned folder, pointed to nothing."""
    scratch = tmp_path / "attempts" / "1" / "scratch"
    folder = scratch / "folder"
    folder.mkdir(parents=True)
    (scratch / "epoch3").write_text("weights")
    (scratch / "latest").symlink_to("epoch3")
    (folder / "own").write_text("own")
    for name, target in (("absolute", folder / "own"), ("relative", Path("own")), ("outside", scratch / "epoch3")):
        (folder / name).symlink_to(target)
    kept = [store_value(path, scratch.parent / f"output_{n}") for n, path in enumerate((scratch / "latest", folder))]
    (scratch / "epoch3").unlink()
    latest, moved = (one.load() for one in kept)
    assert latest.read_text() == "weights"
    texts = {path.name: path.read_text() for path in moved.iterdir()}
    assert texts == {"own": "own", "absolute": "own", "relative": "own", "outside": "weights"}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"w": np.ones(1), "model": object()}, r"the step's result\['model'\] is a builtins.object"),
        ([1, [b"", {1, 2}]], r"result\[1\]\[1\] is a builtins.set"),
        (Metrics("m", object()), r"result.curve is a builtins.object"),
        ({"a": {Path: 1}}, r"result\['a'\] key <class 'pathlib.Path'> is a builtins.type"),
    ],
)
def test_the_part_that_cannot_be_stored_is_named(value: Any, message: str) -> None:
    """The whole was: `a step cannot return a builtins.dict`."""
    with pytest.raises(InputError, match=message):
        check_storable(value)


def test_a_class_defined_in_a_function_is_refused(tmp_path: Path) -> None:
    local = dataclasses.make_dataclass("Local", ["a"])
    local.__qualname__ = "f.<locals>.Local"
    with pytest.raises(InputError, match="Define it in a module"):
        store_value(local(np.ones(1)), tmp_path / "x")


def test_a_class_that_is_gone_is_named(tmp_path: Path) -> None:
    from trek.flow.artefacts.classes import find_class

    with pytest.raises(InputError, match="'Nothing' of module 'no_such_module'"):
        find_class("no_such_module:Nothing")
    with pytest.raises(InputError, match="'Path' of module 'pathlib'"):
        find_class("pathlib:Path")


def _generator() -> Any:
    yield 1


async def _coroutine() -> int:
    return 1


def _model() -> torch.nn.Module:
    return torch.nn.Linear(1, 1)


def _set() -> set[int]:
    return {1}


def _own() -> Metrics:
    return Metrics("a", 1)


@pytest.mark.parametrize(
    ("function", "message"),
    [(_generator, "is a generator"), (_coroutine, "is a coroutine"), (_model, "declared to return a Module")],
)
def test_a_function_whose_result_cannot_be_stored_is_refused_when_it_is_added(function: Any, message: str) -> None:
    """It was refused after its work was done."""
    with pytest.raises(InputError, match=message):
        Flow("f").step(function)
    with pytest.raises(InputError, match=message):
        Flow("f").map(function, Flow("f").step(_own))


LOOKUPS = """
import trek
K = 1
def helper(): return globals()["K"]
def direct(): return globals()["K"]
def inner(): return [lambda: globals()][0]()["K"]
def calls(): return helper()
def named(): return K
"""


@pytest.mark.parametrize("name", ["direct", "inner", "calls", "named"])
def test_a_step_that_looks_names_up_in_its_file_is_refused_with_the_reason(name: str, tmp_path: Path) -> None:
    """It failed with a KeyError while it ran."""
    (tmp_path / "flow.py").write_text(f"{LOOKUPS}flow = trek.Flow('f')\nflow.step({name})\n")
    flow = load_flow(str(tmp_path / "flow.py"))
    if name == "named":
        check_sendable(flow.steps)
        return
    with pytest.raises(InputError, match=rf"the function of step '{name}' calls globals\(\) in"):
        check_sendable(flow.steps)


def test_what_cannot_be_sent_is_named_before_anything_runs() -> None:
    """`the arguments of step … cannot be sent` came after all earlier steps had done their work."""
    import threading

    flow = Flow("f")
    first = flow.step(_own)
    flow.step(print, first, [first, {"lock": threading.Lock()}], name="second")
    with pytest.raises(InputError, match=r"argument 1 of step 'second' cannot be sent to another process: .*lock"):
        check_sendable(flow.steps)
    with pytest.raises(InputError, match="argument 1 of step 'second'"):
        flow.run(show=False)
