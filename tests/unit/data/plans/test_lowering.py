"""Rows of one query of Polars: read while it runs, kept only where they must be, counted without being computed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import trek
from trek import col
from trek.data import Table, ThreadExecutor, running_on

NUM_ROWS = 200_000


@pytest.fixture
def rows(tmp_path: Path) -> Table:
    rng = np.random.default_rng(0)
    columns = {"k": rng.integers(0, 1000, NUM_ROWS), "x": rng.random(NUM_ROWS), "id": np.arange(NUM_ROWS)}
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet", row_group_size=30_000)
    return trek.data.open(tmp_path / "rows.parquet")


PLANS: dict[str, Callable[[Table], Table]] = {
    "sort": lambda rows: rows.sort("x"),
    "reduce": lambda rows: rows.reduce({"id": "sum"}, by="k"),
    "join": lambda rows: rows.join(rows.distinct("k").select("k"), on="k"),
    "filtered": lambda rows: rows.sort("x").filter(col("k") < 500),
    "computed": lambda rows: rows.sort("x").with_columns(y=col("x") + 1),
    "united": lambda rows: rows.sort("x").union(rows.sort("k")),
}


@pytest.mark.parametrize("plan", PLANS)
def test_iterating_a_query_keeps_no_rows(plan: str, rows: Table) -> None:
    table = PLANS[plan](rows)
    with running_on(ThreadExecutor(memory_limit_bytes=1)) as executor:
        iterated = pa.Table.from_batches(list(iter(table)))  # of a list of it, the rows are counted first
        assert executor.num_spilled_bytes == 0
        assert iterated.equals(table.to_arrow())
        assert executor.num_spilled_bytes > 0


@pytest.mark.parametrize("plan", PLANS)
def test_counting_the_rows_of_a_query_keeps_one_number(plan: str, rows: Table) -> None:
    table = PLANS[plan](rows)
    expected = table.to_arrow().num_rows
    with running_on(ThreadExecutor(memory_limit_bytes=1)) as executor:
        assert table.num_rows == expected
        assert executor.num_spilled_bytes <= 8


def test_batches_of_a_query_are_cut_by_number_of_rows_and_in_one_piece(rows: Table) -> None:
    table = rows.filter(col("x") < 0.9).sort("k")
    seen: list[int] = []

    def note(batch: pa.RecordBatch) -> pa.RecordBatch:
        seen.append(batch.num_rows)
        return batch

    table.map(note, arrow=True).to_arrow()
    assert seen == [batch.num_rows for batch in table]
    assert set(seen[:-1]) == {65536}


def test_a_query_may_be_left_early_and_beside_another(rows: Table) -> None:
    ordered = rows.sort("x", descending=True)
    expected = ordered.to_arrow()
    first, second = iter(ordered), iter(rows.sort("id"))
    next(first)
    next(second)
    second.close()  # type: ignore[attr-defined]
    assert ordered.head(3).to_arrow().equals(expected.slice(0, 3))
    assert pa.Table.from_batches(list(first)).equals(expected.slice(65536))


def test_rows_before_a_filter_are_computed_while_they_are_read() -> None:
    """A filter is an operation of Polars, but over rows that a function gives it is none of its queries."""
    made: list[int] = []

    def make(number: int) -> dict[str, np.ndarray]:
        made.append(number)
        return {"x": np.full(10, number)}

    table = Table.of({"n": np.arange(100_000)}).map(lambda batch: make(int(batch["n"][0]))).filter(col("x") >= 0)
    assert table.schema.names == ["x"]
    made.clear()
    next(iter(table))
    assert len(made) < 5


def test_a_sum_over_stored_rows_is_missing_where_every_value_is(tmp_path: Path) -> None:
    """Values that are never missing are not counted; whether they may be is taken from the files' statistics."""
    rng = np.random.default_rng(1)
    for number in range(30):
        rows = pa.table({"k": rng.integers(0, 6, 20), "x": rng.random(20), "b": rng.random(20) < 0.5, "y": np.ones(20)})
        gaps = pa.array(rng.random(20) < rng.choice([0, 0.1, 0.9]))
        rows = rows.set_column(1, "x", pc.if_else(gaps, None, rows["x"])).set_column(
            2, "b", pc.if_else(gaps, None, rows["b"])
        )
        has_statistics = bool(rng.random() < 0.8)
        pq.write_table(rows, tmp_path / f"{number}.parquet", row_group_size=7, write_statistics=has_statistics)
        stored = trek.data.open(tmp_path / f"{number}.parquet")
        known = {"y"} if gaps.true_count else {"x", "y"}
        assert stored._node.filled({"x", "y"}) == (known if has_statistics else set())
        for change in (lambda t: t, lambda t: t.filter(col("y") > 0).rename({"x": "y", "y": "x"})):
            asked = {"x": "sum", "y": "sum", "b": "any", "every": ("b", "all")}
            for by in ("k", ()):
                expected = change(Table.of(rows)).reduce(asked, by=by).to_arrow()
                assert_alike(change(stored).reduce(asked, by=by).to_arrow(), expected)


def test_columns_of_several_files_are_filled_where_all_are(tmp_path: Path) -> None:
    nested = pa.array([{"b": 1}, {"b": 2}])
    for name, values in (("0", [1, 2]), ("1", [1, None])):
        pq.write_table(pa.table({"a": nested, "x": values, "a.b": [None, 1]}), tmp_path / f"{name}.parquet")
    assert trek.data.open(tmp_path / "0.parquet")._node.filled(["x", "a.b"]) == {"x"}
    assert trek.data.open(tmp_path)._node.filled(["x"]) == set()


def assert_alike(found: pa.Table, expected: pa.Table) -> None:
    """Equal but for the last bits of sums."""
    assert found.schema.equals(expected.schema)
    for name in expected.column_names:
        assert found[name].is_null().equals(expected[name].is_null())
        np.testing.assert_allclose(found[name].drop_null().to_numpy(), expected[name].drop_null().to_numpy())
