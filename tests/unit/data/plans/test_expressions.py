"""Expressions compute what Python would, and say what they are."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from itertools import product
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import trek
from trek.data import Table
from trek.errors import InputError

BATCH = pa.record_batch({"a": [1, 2, 3, None], "b": [4.0, 3.0, 2.0, 1.0], "s": ["x", "y", "x", "z"]})


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (trek.col("a") < 2, [True, False, False, None]),
        (trek.col("a") >= trek.col("b"), [False, False, True, None]),
        ((trek.col("a") == 1) | (trek.col("b") == 1), [True, False, False, True]),
        ((trek.col("a") > 1) & ~(trek.col("s") == "x"), [False, True, False, None]),
        (trek.col("s").is_in(["x", "z"]), [True, False, True, True]),
        (trek.col("a").is_null(), [False, False, False, True]),
        (trek.col("a").is_valid(), [True, True, True, False]),
        (trek.col("a") / 2, [0.5, 1.0, 1.5, None]),
        (1 - trek.col("b") * 2 + 1, [-6.0, -4.0, -2.0, 0.0]),
        ((-trek.col("a")).abs(), [1, 2, 3, None]),
        (6 / trek.col("a"), [6.0, 3.0, 2.0, None]),
        (trek.col("a") != 2, [True, False, True, None]),
    ],
)
def test_an_expression_computes(expression: trek.data.Expression, expected: list[object]) -> None:
    assert expression.evaluate(BATCH).to_pylist() == expected


def test_an_expression_reads_as_it_was_written() -> None:
    expression = (trek.col("label") < 10) & trek.col("s").is_in(["x"])
    assert repr(expression) == "((col('label') < 10) & is_in(col('s'), ('x',)))"
    assert expression.columns == {"label", "s"}


def test_an_expression_has_no_truth() -> None:
    with pytest.raises(InputError, match="has no truth"):
        bool(trek.col("a") < 1)


def test_an_unknown_column_lists_the_known() -> None:
    with pytest.raises(InputError, match="There are: a, b, s"):
        trek.col("c").evaluate(BATCH)


def test_a_comparison_that_makes_no_sense_is_one_error() -> None:
    with pytest.raises(InputError, match="cannot compute"):
        (trek.col("s") < 1).evaluate(BATCH)


@pytest.mark.parametrize("divisor", [3, -3, 2.5])
def test_a_remainder_is_pythons(divisor: float) -> None:
    values = [-7, -6, -1, 0, 1, 6, 7]
    found = Table.of({"x": values}).with_columns(r=trek.col("x") % divisor).to_numpy()["r"].tolist()
    assert found == [value % divisor for value in values]


_INTEGERS = [0, 1, -1, 7, 2**53, 2**53 + 1, -(2**53) - 1, 2**60 + 1, 2**63 - 1, -(2**63), None]
_LARGE = [0, 1, 2**53 + 1, 2**63, 2**63 + 1, 2**64 - 1, None]
_FLOATS = [
    0.0,
    -0.0,
    1.5,
    -1.5,
    2.0**53,
    2.0**53 + 2,
    2.0**60,
    2.0**63,
    1e300,
    math.inf,
    -math.inf,
    math.nan,
    0.1,
    None,
]
_COLUMNS = {"int64": (_INTEGERS, pa.int64()), "uint64": (_LARGE, pa.uint64()), "double": (_FLOATS, pa.float64())}
_COMPARISONS = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]


def _answer(compare: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    return None if left is None or right is None else compare(left, right)


@pytest.mark.parametrize("right", _COLUMNS)
@pytest.mark.parametrize("left", _COLUMNS)
def test_numbers_of_all_kinds_are_compared_as_python_does(left: str, right: str) -> None:
    """An integer beyond 2**53 could not be compared with a float; a NaN must not equal itself."""
    (lefts, left_type), (rights, right_type) = _COLUMNS[left], _COLUMNS[right]
    pairs = list(product(lefts, rights))
    columns = [pa.array([p[n] for p in pairs], kind) for n, kind in enumerate((left_type, right_type))]
    both = pa.record_batch(columns, ["a", "b"])
    alone = pa.record_batch([pa.array(lefts, left_type)], ["a"])
    for compare in _COMPARISONS:
        found = compare(trek.col("a"), trek.col("b")).evaluate(both).to_pylist()
        assert found == [_answer(compare, *pair) for pair in pairs], compare
        for value in [*rights, 2**70, -(2**70), 10**400]:
            if value is not None:
                found = compare(trek.col("a"), value).evaluate(alone).to_pylist()
                assert found == [_answer(compare, number, value) for number in lefts], (compare, value)


@given(
    values=st.lists(st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False)), min_size=1, max_size=20),
    divisor=st.floats(allow_nan=False).filter(lambda x: x != 0),
)
def test_the_remainder_of_floats_is_pythons(values: list[float | None], divisor: float) -> None:
    """1.0 % 0.1 was a difference of products: 0.0 in place of 0.09999999999999995."""
    batch = pa.record_batch([pa.array(values, pa.float64())], ["x"])
    found = (trek.col("x") % divisor).evaluate(batch).to_pylist()
    assert found == [None if value is None else value % divisor for value in values]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (trek.col("big") + 1, 2**63 + 6),
        (trek.col("big") - 1, 2**63 + 4),
        (trek.col("big") - trek.col("id"), 2**63 + 5 - (2**60 + 1)),
        (trek.col("id") / 2, (2**60 + 1) / 2),
        (7 % trek.col("id"), 7),
        (trek.col("id").is_in([2.5, 2**60 + 1, 2**80]), True),
        (trek.col("id").is_in([float(2**60)]), False),
        (trek.col("text").cast("int32") + 1, 13),
        (trek.col("id").cast("string"), str(2**60 + 1)),
        (trek.col("half").cast("int8"), 1),
    ],
)
def test_large_integers_and_casts(expression: trek.data.Expression, expected: object) -> None:
    """Integers beyond 2**53 could not be divided, and no operation converted a column."""
    big = pa.array([2**63 + 5], pa.uint64())
    batch = pa.record_batch({"big": big, "id": [2**60 + 1], "text": ["12"], "half": [1.5]})
    assert expression.evaluate(batch).to_pylist() == [expected]


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (trek.col("a").is_in(["x"]), "'x' is of <class 'str'>"),
        (trek.col("s").is_in([1]), "Convert the values"),
        (trek.col("b").cast("int8") + 2**70, "does not fit in an integer of 64 bits"),
        (trek.col("s").cast("int32"), "conversion from `str` to `i32` failed"),
        (trek.col("a") % 0, "an integer % 0 is not defined"),
        (trek.col("s") % 2, "cannot compute"),
    ],
)
def test_what_cannot_be_computed_is_one_sentence(expression: trek.data.Expression, message: str) -> None:
    """Some of these were errors of Arrow, from deep inside."""
    with pytest.raises(InputError, match=message) as caught:
        expression.evaluate(BATCH)
    assert "\n" not in str(caught.value)


def test_a_type_that_does_not_exist_is_refused_at_once() -> None:
    with pytest.raises(InputError, match="'nonsense' is not a valid type"):
        trek.col("a").cast("nonsense")


def test_expressions_are_the_same_in_a_query_and_batch_by_batch() -> None:
    """Behind a function, expressions are computed batch by batch; over stored rows, in one query."""
    table = Table.of({"x": [1.0, -0.0, float("nan"), None, 5.5], "k": [1, 2, 3, 4, 5]}, num_partitions=2)
    computed = {"y": trek.col("x") % 2, "z": (trek.col("x") > trek.col("k")) | trek.col("x").is_null()}
    for found in (table, table.map(lambda batch: batch), table.sort("k")):
        rows = found.with_columns(**computed).filter(trek.col("k") != 2).to_arrow()
        assert repr(rows["y"].to_pylist()) == "[1.0, nan, None, 1.5]"
        assert rows["z"].to_pylist() == [False, False, True, True]
