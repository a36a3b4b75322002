"""Operations over all partitions give what pandas and Polars give, whether rows are exchanged, spilled or neither."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import trek
from trek.data import Table
from trek.data.execution import running_on
from trek.data.execution.base import Executor
from trek.data.execution.threads import ThreadExecutor
from trek.errors import InputError, TrainingError

many = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])

_KEYS = st.one_of(st.none(), st.integers(-3, 3))
_TEXTS = st.one_of(st.none(), st.sampled_from(["", "a", "b", "ä"]))
_NUMBERS = st.one_of(st.none(), st.integers(-100, 100))


@st.composite
def tables(draw: st.DrawFn, *, value: str = "v", min_size: int = 1) -> pa.Table:
    rows = draw(st.lists(st.tuples(_KEYS, _TEXTS, _NUMBERS), min_size=min_size, max_size=30))
    columns = [list(column) for column in zip(*rows, strict=True)] if rows else [[], [], []]
    types = [pa.int64(), pa.string(), pa.int64()]
    return pa.table(
        [pa.array(c, t) for c, t in zip(columns, types, strict=True)],
        names=["k", "s", value],
    )


@pytest.fixture(params=["at once", "exchanged"])
def executor(request: pytest.FixtureRequest) -> Iterator[Callable[[], Executor]]:
    """Executors that do keyed work in one place, or that must exchange (and spill) because memory is short."""
    limit = None if request.param == "at once" else 64
    return lambda: ThreadExecutor(2, memory_limit_bytes=limit)


def as_sets(frame: Any) -> list[tuple[Any, ...]]:
    """Rows as sorted tuples, missing values all alike."""
    rows = frame.to_pylist() if isinstance(frame, pa.Table) else frame
    return sorted((tuple(_plain(v) for v in row.values()) for row in rows), key=repr)


def _plain(value: Any) -> Any:
    return None if value is None or value != value else round(float(value), 6) if isinstance(value, float) else value


@many
@given(data=tables(), parts=st.integers(1, 4))
def test_keyed_reduce_is_a_group_by(data: pa.Table, parts: int, executor: Any) -> None:
    words = {
        "total": ("v", "sum"),
        "n": ("v", "count"),
        "low": ("v", "min"),
        "high": ("v", "max"),
        "rows": ("*", "count"),
    }
    with running_on(executor()):
        got = Table.of(data, num_partitions=parts).reduce(words, by=["k", "s"]).to_arrow()
    v = pl.col("v")
    all_missing = v.count() == 0
    expected = (
        pl.DataFrame(data)
        .group_by("k", "s")
        .agg(
            pl.when(all_missing).then(None).otherwise(v.sum()).alias("total"),
            v.count().alias("n"),
            v.min().alias("low"),
            v.max().alias("high"),
            pl.len().alias("rows"),
        )
    )
    assert as_sets(got) == as_sets(expected.to_dicts())


@many
@given(data=tables(), parts=st.integers(1, 4))
def test_mean_std_and_distinct_are_those_of_pandas(data: pa.Table, parts: int, executor: Any) -> None:
    words = {"mean": ("v", "mean"), "std": ("v", "std"), "kinds": ("v", "count_distinct")}
    with running_on(executor()):
        got = Table.of(data, num_partitions=parts).reduce(words, by="k").to_arrow()
    grouped = data.to_pandas().groupby("k", dropna=False)["v"]
    expected = pd.DataFrame({"mean": grouped.mean(), "std": grouped.std(ddof=1), "kinds": grouped.nunique()})
    assert as_sets(got) == as_sets(expected.reset_index().to_dict("records"))


@many
@given(data=tables(), parts=st.integers(1, 4))
def test_reduce_without_keys_is_one_row(data: pa.Table, parts: int, executor: Any) -> None:
    with running_on(executor()):
        got = Table.of(data, num_partitions=parts).reduce({"v": "max", "n": ("*", "count")}).to_arrow()
    assert got.to_pylist() == [{"v": pa.compute.max(data["v"]).as_py(), "n": data.num_rows}]


@many
@given(numbers=st.lists(st.integers(-50, 50), min_size=1, max_size=40), parts=st.integers(1, 5))
def test_reduce_by_a_function_sees_every_row_once(numbers: list[int], parts: int) -> None:
    table = Table.of({"x": np.array(numbers)}, num_partitions=parts)
    assert table.reduce(lambda batch: {"x": batch["x"].sum(keepdims=True)}).to_numpy()["x"].tolist() == [sum(numbers)]
    by_rows = table.reduce(lambda a, b: {"x": max(a["x"], b["x"])}, rows=True)
    assert by_rows.to_numpy()["x"].tolist() == [max(numbers)]


def test_a_function_reduces_tensors_by_key(executor: Any) -> None:
    images = np.arange(24).reshape(6, 2, 2)
    table = Table.of({"k": [0, 1, 0, 1, 0, 1], "image": images}, num_partitions=2)
    with running_on(executor()):
        summed = table.reduce(lambda b: {"k": b["k"][:1], "image": b["image"].sum(0, keepdims=True)}, by="k").sort("k")
        np.testing.assert_array_equal(summed.to_numpy()["image"], [images[::2].sum(0), images[1::2].sum(0)])


def test_all_reduce_gives_every_partition_the_result() -> None:
    table = Table.of({"x": np.arange(10)}, num_partitions=3).all_reduce({"x": "sum"})
    assert table.num_partitions == 3
    assert table.to_numpy()["x"].tolist() == [45, 45, 45]


def test_gather_brings_all_rows_into_one_partition_in_order() -> None:
    table = Table.of({"x": np.arange(10)}, num_partitions=3).gather()
    assert table.num_partitions == 1
    assert table.to_numpy()["x"].tolist() == list(range(10))


def test_all_gather_and_replicate_give_every_partition_all_rows() -> None:
    table = Table.of({"x": [1, 2]}, num_partitions=2)
    sizes = table.all_gather().compute(lambda batches, context: {"n": [sum(len(b["x"]) for b in batches)]})
    assert sizes.to_numpy()["n"].tolist() == [2, 2]
    assert table.replicate(3).to_numpy()["x"].tolist() == [1, 2] * 3
    assert table.replicate(3).num_rows == 6


@many
@given(data=tables(), parts=st.integers(1, 4))
def test_keyed_gather_lists_the_rows_of_each_key_in_order(data: pa.Table, parts: int, executor: Any) -> None:
    with running_on(executor()):
        got = Table.of(data, num_partitions=parts).gather(by="k").to_arrow()
    expected = pl.DataFrame(data).group_by("k", maintain_order=True).agg("s", "v")
    assert sorted(map(repr, got.to_pylist())) == sorted(map(repr, expected.to_dicts()))


def test_keyed_gather_lists_tensors() -> None:
    images = np.arange(12, dtype=np.uint8).reshape(3, 2, 2)
    (row,) = [
        r for r in Table.of({"k": [1, 2, 1], "image": images}).gather(by="k").to_arrow().to_pylist() if r["k"] == 1
    ]
    assert [np.ravel(image).tolist() for image in row["image"]] == [[0, 1, 2, 3], [8, 9, 10, 11]]


@many
@given(data=tables(), parts=st.integers(1, 4), targets=st.integers(1, 5))
def test_keyed_partition_keeps_equal_keys_together_and_loses_nothing(data: pa.Table, parts: int, targets: int) -> None:
    def note(batches: Any, context: Any) -> Iterator[Any]:
        for batch in batches:
            yield {
                "partition": np.full(len(batch["k"]), context.index),
                "k": np.nan_to_num(batch["k"].astype(float), nan=9),
            }

    table = Table.of(data, num_partitions=parts).partition(targets, by="k")
    assert as_sets(table.to_arrow()) == as_sets(data)
    homes = table.compute(note).to_pandas().groupby("k")["partition"].nunique()
    assert (homes == 1).all()


@pytest.mark.parametrize("how", ["inner", "left", "right", "outer"])
@many
@given(
    left=tables(value="a"), right=tables(value="b"), parts=st.integers(1, 3), on=st.sampled_from([["k"], ["k", "s"]])
)
def test_joins_are_those_of_polars(
    left: pa.Table, right: pa.Table, parts: int, on: list[str], how: Any, executor: Any
) -> None:
    with running_on(executor()):
        mine = Table.of(left, num_partitions=parts).join(Table.of(right, num_partitions=2), on=on, how=how)
        got = mine.to_arrow()
    theirs = pl.DataFrame(left).join(pl.DataFrame(right), on=on, how="full" if how == "outer" else how, coalesce=True)
    expected = theirs.select(got.column_names).to_dicts()
    assert as_sets(got) == as_sets(expected)
    assert mine.schema.equals(got.schema)


def test_a_join_carries_tensors_and_leaves_gaps_where_nothing_matched() -> None:
    images = np.arange(8, dtype=np.uint8).reshape(2, 2, 2)
    left = Table.of({"k": [1, 2, 3], "x": [10, 20, 30]})
    joined = left.join(Table.of({"k": [3, 1], "image": images}), on="k", how="left").sort("k")
    column = joined.to_arrow().column("image")
    assert column.is_null().to_pylist() == [False, True, False]
    np.testing.assert_array_equal(joined.to_numpy()["image"][2], images[0])


def test_a_join_with_an_empty_side(executor: Any) -> None:
    left = Table.of({"k": [1, 2]})
    nothing = Table.of({"k": [1], "b": [5]}).filter(trek.col("k") > 1)
    with running_on(executor()):
        assert left.join(nothing, on="k").num_rows == 0
        assert left.join(nothing, on="k", how="left").to_arrow()["b"].null_count == 2


@many
@given(data=tables(), parts=st.integers(1, 4), descending=st.booleans())
def test_sort_is_stable_with_missing_values_last(data: pa.Table, parts: int, descending: bool) -> None:
    numbered = data.append_column("row", pa.array(np.arange(data.num_rows)))
    got = Table.of(numbered, num_partitions=parts).sort("k", "s", descending=descending)
    expected = pl.DataFrame(numbered).sort("k", "s", descending=descending, nulls_last=True, maintain_order=True)
    assert got.to_arrow()["row"].to_pylist() == expected["row"].to_list()
    assert got.num_partitions == parts


def test_cache_computes_once_and_lazily_when_asked() -> None:
    calls: list[int] = []

    def noted(batch: Any) -> Any:
        calls.append(1)
        return batch

    table = Table.of({"x": np.arange(4)}).map(noted)
    lazy = table.cache(lazy=True)
    assert calls == []
    for _ in range(2):
        assert lazy.to_numpy()["x"].tolist() == [0, 1, 2, 3]
    assert len(calls) == 1
    eager = table.cache()
    assert len(calls) == 2
    assert eager.num_rows == 4
    assert len(calls) == 2


def test_for_each_sees_batches_in_order_and_sink_runs_once_a_partition(tmp_path: Path) -> None:
    table = Table.of({"x": np.arange(6)}, num_partitions=3)
    seen: list[int] = []
    table.for_each(lambda batch: seen.extend(batch["x"].tolist()))
    assert seen == list(range(6))

    def write(batches: Any, context: Any) -> None:
        (tmp_path / str(context.index)).write_text(str(sum(int(b["x"].sum()) for b in batches)))

    table.sink(write)
    assert [(tmp_path / str(i)).read_text() for i in range(3)] == ["1", "5", "9"]


def test_side_inputs_serve_an_iterative_algorithm() -> None:
    """k-means in one dimension: points stay cached, centres go round."""
    points = Table.of({"x": np.array([0.0, 1.0, 2.0, 10.0, 11.0, 12.0])}, num_partitions=2).cache()
    centres = Table.of({"c": np.array([0.0, 5.0])})

    def assign(batches: Any, context: Any) -> Iterator[Any]:
        for batch in batches:
            nearest = np.abs(batch["x"][:, None] - context.inputs["centres"]["c"]).argmin(1)
            yield {"nearest": nearest, "x": batch["x"]}

    for _ in range(3):
        assigned = points.compute(assign).add_input("centres", centres)
        centres = assigned.reduce({"c": ("x", "mean")}, by="nearest").sort("nearest").select("c").cache()
    assert centres.to_numpy()["c"].tolist() == [1.0, 11.0]


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda t: t.reduce({"x": "median"}), "aggregate 'median' does not exist"),
        (lambda t: t.reduce({"y": "sum"}), "'y' does not exist"),
        (lambda t: t.reduce({"image": "sum"}), "function over arrays"),
        (lambda t: t.reduce({"x": "sum"}, by="image"), "cannot be a key"),
        (lambda t: t.join(t, on="x", how="cross"), "join 'cross' does not exist"),
        (lambda t: t.join(t, on="z"), "left table has no column 'z'"),
        (lambda t: t.join(Table.of({"x": ["a"]}), on="x"), "int64 on the left and string on the right"),
        (lambda t: t.join(t, on="x", suffix=""), "two columns the name 'image'"),
        (lambda t: t.add_input("c", t), r"must follow compute\(\)"),
        (lambda t: t.partition(0), "at least 1"),
        (lambda t: t.window(2.5), "whole number of rows"),
        (lambda t: t.window(2, by="y"), "'y' does not exist"),
    ],
)
def test_mistakes_are_one_error_at_once(act: Callable[[Table], Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        act(Table.of({"x": [1, 2], "image": np.zeros((2, 2, 2))}))


@pytest.mark.parametrize("how", ["inner", "left", "right", "outer"])
def test_columns_chosen_after_a_join_are_those_of_the_whole_join(how: Any) -> None:
    left = Table.of({"key": [1, 2, 2, 5], "x": [1.0, 2.0, 3.0, 4.0], "name": ["a", "b", "c", "d"]}, num_partitions=2)
    right = Table.of({"key": [2, 5, 7], "x": [10, 20, 30]})
    joined = left.join(right, on="key", how=how)
    for names in (["x_right", "x"], ["name"], ["key"], ["x", "key"]):
        chosen = joined.select(*names).to_pandas()
        assert list(chosen.columns) == names
        whole = joined.to_pandas()[names]
        assert sorted(map(repr, chosen.to_numpy().tolist())) == sorted(map(repr, whole.to_numpy().tolist()))


def test_equal_aggregates_may_have_several_names() -> None:
    table = Table.of({"x": [1, 2], "x_sum": [3, 3]})
    asked = {"a": ("x", "sum"), "b": ("x", "sum"), "m": ("*", "count"), "n": ("*", "count")}
    assert table.reduce(asked, by="x_sum").to_arrow().to_pylist() == [{"x_sum": 3, "a": 3, "b": 3, "m": 2, "n": 2}]


def test_a_function_that_reduces_by_key_need_not_give_the_key() -> None:
    table = Table.of({"k": ["a", "b", "a"], "x": [1, 2, 3]}, num_partitions=2)
    spread = table.reduce(lambda rows: {"spread": [np.ptp(rows["x"])]}, by="k")
    assert spread.sort("k").to_arrow().to_pylist() == [{"k": "a", "spread": 2}, {"k": "b", "spread": 0}]


def test_a_function_that_cannot_reduce_its_own_results_is_told_so() -> None:
    table = Table.of({"x": [1, 2, 3]}, num_partitions=2)
    with pytest.raises(
        TrainingError, match=r"applied to its own results \(it must return the columns that it takes\): KeyError"
    ):
        table.reduce(lambda rows: {"most": [rows["x"].max()]}).to_arrow()


def test_results_of_a_function_that_differ_in_type_name_the_column() -> None:
    table = Table.of({"x": [1, 2, 3]}, num_partitions=2)
    with pytest.raises(InputError, match="results to reduce: expected type int64 for column 'x'"):
        table.reduce(lambda rows: {"x": [1] if 1 in rows["x"] else [0.5]}).to_arrow()
