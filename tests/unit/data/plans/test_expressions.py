"""Expressions compute what Python would, and say what they are."""

from __future__ import annotations

import pyarrow as pa
import pytest

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
