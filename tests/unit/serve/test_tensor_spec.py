"""Arrays of what a request holds: the same values, or an error."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trek.errors import InputError
from trek.serve.tensor_spec import TensorSpec, cast, to_array

WHOLE = st.integers(-(1 << 63), (1 << 64) - 1)


@given(st.lists(st.booleans()) | st.lists(st.text()) | st.lists(st.floats(allow_nan=False)) | st.lists(WHOLE))
def test_values_of_one_kind_stay_what_they_are(values: list[Any]) -> None:
    try:
        found = to_array(values, name="x").tolist()
    except InputError:
        assert min(values) < 0 <= max(values) >> 63  # neither int64 nor uint64 holds all of them
    else:
        assert found == values
        assert {type(one) for one in found} == {type(one) for one in values}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["a", 1], "got numbers and text"),
        ([["a"], [True]], "got text and true or false"),
        ([1, True], "got numbers and true or false"),
        ([1, None], "got null and numbers"),
        ([{"a": 1}], "got objects"),
        ([b"a"], "got bytes"),
        ([1, [2]], "rectangular list"),
        ([[1], [2, 3]], "rectangular list"),
        ([9007199254740993, 0.5], "numbers that no type"),
        ([-1, 1 << 63], "numbers that no type"),
    ],
)
def test_values_of_several_kinds_are_refused(values: list[Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        to_array(values, name="x")


def test_numbers_become_what_holds_them_all() -> None:
    assert to_array([1, 0.5], name="x").tolist() == [1.0, 0.5]
    assert to_array([1 << 63, 0], name="x").dtype == np.uint64
    assert to_array([], name="x").dtype == np.float64
    assert to_array(np.empty(0, dtype=object), name="x").dtype == object


@pytest.mark.parametrize(
    ("given", "dtype"),
    [
        ([True], "int64"),
        ([True], "float32"),
        ([2], "bool"),
        ([1e39], "float32"),
        ([-1], "uint8"),
        ([np.nan], "int64"),
        (["a"], "float32"),
        ([1], "text"),
    ],
)
def test_a_value_that_would_become_another_one_is_refused(given: list[Any], dtype: str) -> None:
    with pytest.raises(InputError, match=f"must be {dtype}"):
        TensorSpec("x", dtype, ()).fit(given)


def test_infinities_that_were_sent_stay() -> None:
    found = cast(np.asarray([np.inf, np.nan, 1.0]), name="x", dtype="float32")
    assert np.array_equal(found, np.asarray([np.inf, np.nan, 1.0], "float32"), equal_nan=True)


def test_one_long_text_takes_no_more_memory_in_many_rows() -> None:
    texts = ["b" * 100_000] + ["a"] * 1999
    tracemalloc.start()
    try:
        found = to_array(texts, name="x")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.tolist() == texts
    assert peak < 1_000_000
