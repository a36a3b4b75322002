"""Fingerprints follow what a computation does, not where its text stands."""

from __future__ import annotations

import functools
import itertools
import textwrap
import threading
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from trek.fingerprints import fingerprint, fingerprint_value


def define(text: str, **names: Any) -> Callable[..., Any]:
    """The function f of a module with this text, as if just imported."""
    space = {"__name__": "user_module", **names}
    exec(textwrap.dedent(text), space)
    return space["f"]


def test_moving_and_commenting_a_function_changes_nothing() -> None:
    here = define("def f(x):\n    return x + 1")
    moved = define("\n\n\n# a remark\ndef f(x):\n    # another\n    return x + 1")
    assert fingerprint(here) == fingerprint(moved)


@pytest.mark.parametrize(
    "changed",
    [
        "def f(x):\n    return x + 2",
        "def f(x):\n    return x - 1",
        "def f(x, y=2):\n    return x + 1",
        "def f(y):\n    return y + 1",
    ],
)
def test_a_changed_function_is_noticed(changed: str) -> None:
    assert fingerprint(define("def f(x):\n    return x + 1")) != fingerprint(define(changed))


def test_a_changed_helper_is_noticed() -> None:
    text = "def g(x):\n    return x * {}\ndef f(x):\n    return g(x)"
    assert fingerprint(define(text.format(2))) != fingerprint(define(text.format(3)))


def test_a_changed_constant_of_the_module_is_noticed() -> None:
    text = "SCALE = {}\ndef f(x):\n    return x / SCALE"
    assert fingerprint(define(text.format(128))) != fingerprint(define(text.format(255)))


def test_a_changed_closure_is_noticed() -> None:
    def make(scale: int) -> Callable[[int], int]:
        return lambda x: x * scale

    assert fingerprint(make(2)) != fingerprint(make(3))
    assert fingerprint(make(2)) == fingerprint(make(2))


def test_functions_that_call_each_other_come_to_an_end() -> None:
    text = "def f(x):\n    return g(x)\ndef g(x):\n    return f(x)"
    assert fingerprint(define(text)) == fingerprint(define(text))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (np.arange(3), np.arange(4)),
        (np.arange(3, dtype=np.int32), np.arange(3, dtype=np.int64)),
        (pa.table({"a": [1]}), pa.table({"a": [2]})),
        (1, True),
        ("1", 1),
        ([1, [2]], [1, 2]),
        ({"a": 1}, {"a": 2}),
        (functools.partial(max, 1), functools.partial(max, 2)),
    ],
)
def test_different_values_differ(one: Any, other: Any) -> None:
    assert fingerprint(one) != fingerprint(other)


def test_the_order_of_keys_counts_and_that_of_members_does_not() -> None:
    """A function may return list(d): with the keys in another order, it was served the old list."""
    assert fingerprint({"a": 1, "b": 2}) != fingerprint({"b": 2, "a": 1})
    assert fingerprint({"x", "y"}) == fingerprint({"y", "x"})


def test_how_an_arrow_table_is_chunked_does_not_count() -> None:
    whole = pa.table({"a": [1, 2]})
    assert fingerprint(whole) == fingerprint(pa.concat_tables([whole.slice(0, 1), whole.slice(1)]))


class _Opaque:
    def __reduce__(self) -> Any:
        raise TypeError("cannot be copied")


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (threading.Lock(), "_thread.lock"),
        (_Opaque(), "tests.unit.fingerprints.test_values._Opaque"),
        (iter([1]), "list_iterator"),
        ((x for x in ()), "generator"),
        (itertools.count(), "itertools.count"),
    ],
    ids=["lock", "opaque object", "iterator", "generator", "endless iterator"],
)
def test_what_cannot_be_fingerprinted_is_named_and_equals_nothing(value: Any, kind: str) -> None:
    """Such objects counted by their printed form, which is the same for different ones."""
    holder = types.SimpleNamespace(inner=[value])
    found = fingerprint_value(holder, name="argument 0")
    (unknown,) = found.unknown
    assert unknown.startswith("argument 0.inner[0] (")
    assert kind.rpartition(".")[2] in unknown
    assert found.digest != fingerprint_value(holder, name="argument 0").digest


def test_what_is_nested_too_deeply_is_named() -> None:
    value: list[Any] = []
    for _ in range(5000):
        value = [value]
    assert "nested too deeply" in fingerprint_value(value).unknown[0]


def test_an_object_that_holds_itself_comes_to_an_end() -> None:
    circle: list[Any] = [1]
    circle.append(circle)
    other: list[Any] = [2]
    other.append(other)
    assert fingerprint(circle) != fingerprint(other)


def test_a_class_may_say_what_counts() -> None:
    class Connection:
        def __init__(self, address: str) -> None:
            self.address, self.lock = address, threading.Lock()

        def __trek_fingerprint__(self) -> str:
            return self.address

    assert fingerprint(Connection("a")) == fingerprint(Connection("a")) != fingerprint(Connection("b"))


def test_the_sign_of_many_numbers_counts() -> None:
    """A large array and its negative had the same fingerprint: the sum over a block lost the highest bits."""
    many = np.arange(1 << 17, dtype=np.float64)
    assert fingerprint(many) != fingerprint(-many)
    assert fingerprint(pa.table({"a": many})) != fingerprint(pa.table({"a": -many}))
