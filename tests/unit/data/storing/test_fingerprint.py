"""Fingerprints follow what a computation does, not where its text stands."""

from __future__ import annotations

import functools
import textwrap
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from trek.data.storing.fingerprint import fingerprint


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


def test_order_of_keys_and_members_does_not_count() -> None:
    assert fingerprint({"a": 1, "b": {"x", "y"}}) == fingerprint({"b": {"y", "x"}, "a": 1})


def test_how_an_arrow_table_is_chunked_does_not_count() -> None:
    whole = pa.table({"a": [1, 2]})
    assert fingerprint(whole) == fingerprint(pa.concat_tables([whole.slice(0, 1), whole.slice(1)]))


def test_addresses_in_memory_do_not_count() -> None:
    assert fingerprint([threading.Lock()]) == fingerprint([threading.Lock()])
