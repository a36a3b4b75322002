"""Columns of every type that people have go through every operation, and come back as they were."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trek
from trek import col
from trek.data import Table
from trek.errors import InputError

_DAY = dt.datetime(2024, 5, 1, 10)
COLUMNS: dict[str, pa.Array] = {
    "string": pa.array(["b", "a", None, "b"]),
    "large_string": pa.array(["b", "a", None, "b"], pa.large_string()),
    "string_view": pa.array(["b", "a", None, "b" * 40], pa.string_view()),
    "binary": pa.array([b"b", b"a", None, b"b"]),
    "fixed binary": pa.array([b"bb", b"aa", None, b"bb"], pa.binary(2)),
    "dictionary": pa.array(["b", "a", None, "b"]).dictionary_encode(),
    "dictionary of numbers": pa.array([7, 5, None, 7]).dictionary_encode(),
    "ordered": pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 0], pa.int8()), ["b", "a"], ordered=True),
    "bool": pa.array([True, False, None, True]),
    "int8": pa.array([2, 1, None, 2], pa.int8()),
    "uint64": pa.array([2**63 + 1, 1, None, 2**64 - 1], pa.uint64()),
    "float16": pa.array(np.array([2, 1, 0, 2], np.float16)),
    "float32": pa.array([2.5, 1.0, None, 2.5], pa.float32()),
    "decimal": pa.array([Decimal("2.50"), Decimal("1.00"), None, Decimal("2.50")]),
    "date": pa.array([_DAY.date(), dt.date(2020, 1, 1), None, _DAY.date()]),
    "timestamp": pa.array([_DAY, dt.datetime(2020, 1, 1), None, _DAY], pa.timestamp("s")),
    "timestamp with zone": pa.array([_DAY, dt.datetime(2020, 1, 1), None, _DAY], pa.timestamp("us", "Europe/Berlin")),
    "time": pa.array([dt.time(10), dt.time(9), None, dt.time(10)], pa.time32("s")),
    "duration": pa.array([dt.timedelta(2), dt.timedelta(1), None, dt.timedelta(2)]),
}
NOT_KEYS: dict[str, pa.Array] = {
    "null": pa.nulls(4),
    "list": pa.array([[1, 2], [], None, [3]]),
    "list of texts": pa.array([["a"], [], None, ["b", None]]),
    "struct": pa.array([{"a": 1}, {"a": None}, None, {"a": 2}]),
    "tensor": pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(16, dtype=np.uint8).reshape(4, 2, 2)),
    "tensor of booleans": pa.ExtensionArray.from_storage(
        pa.fixed_shape_tensor(pa.bool_(), (2,)), pa.FixedSizeListArray.from_arrays(pa.array([True, False] * 4), 2)
    ),
}
_WIDE = pa.array([Decimal("2.50"), None, None, Decimal("-1.00")], pa.decimal256(50, 2))
_INTERVAL = pa.array([(1, 2, 3), None, (0, 0, 1), (4, 5, 6)], pa.month_day_nano_interval())
CARRIED: dict[str, pa.Array] = {
    "uuid": pa.array([b"b" * 16, b"a" * 16, None, b"b" * 16], pa.uuid()),
    "json": pa.array(["2", "1", None, "2"], pa.json_()),
    "bool8": pa.array([1, 0, None, 1], pa.bool8()),
    "opaque": pa.ExtensionArray.from_storage(pa.opaque(pa.int64(), "money", "bank"), pa.array([2, 1, None, 2])),
    "decimal of 256 bits": _WIDE,
    "interval": _INTERVAL,
    "dictionary of wide decimals": _WIDE.dictionary_encode(),
    "list of wide decimals": pa.array([[Decimal(1)], [], None, [Decimal(2), None]], pa.list_(pa.decimal256(50, 0))),
    "struct of intervals": pa.array(
        [{"a": (1, 2, 3)}, {"a": None}, None, {"a": (4, 5, 6)}], pa.struct([("a", pa.month_day_nano_interval())])
    ),
}
"""Of types that Polars does not have."""
NOT_KEYS |= CARRIED


def table_of(column: pa.Array, *, num_partitions: int = 2) -> Table:
    return Table.of(pa.table({"c": column, "id": [0, 1, 2, 3]}), num_partitions=num_partitions)


def ids(table: Table) -> list[int]:
    found: list[int] = table.to_arrow()["id"].to_pylist()
    return found


@pytest.mark.parametrize("name", [*COLUMNS, *NOT_KEYS])
def test_a_column_of_any_type_is_carried_by_every_operation(name: str) -> None:
    """Texts of Polars (string_view) ended in an error of Arrow, and so did most dictionaries."""
    column = {**COLUMNS, **NOT_KEYS}[name]
    table = table_of(column)
    values = column.to_pylist()
    other = Table.of({"id": [2, 0, 9]})
    carried: dict[str, tuple[Table, list[Any]]] = {
        "whole": (table, values),
        "filter": (table.filter(col("id") > 1), values[2:]),
        "filter by a function": (table.filter(lambda batch: batch["id"] > 1), values[2:]),
        "behind a function": (table.map(lambda batch: batch, arrow=True).filter(col("id") > 1), values[2:]),
        "sort": (table.sort("id", descending=True), values[::-1]),
        "join": (table.join(other, on="id"), [values[0], values[2]]),
        "outer join": (table.join(other, on="id", how="outer"), [*values, None]),
        "union": (table.union(table_of(column, num_partitions=1)), values * 2),
        "distinct": (table.distinct("id"), values),
        "partition by key": (table.partition(2, by="id").sort("id"), values),
        "windows": (table.partition(1).window(2).rows(), values),
        "cast of another": (table.with_columns(id=col("id").cast("int8")), values),
    }
    for verb, (found, expected) in carried.items():
        rows = found.to_arrow()
        assert repr(rows["c"].to_pylist()) == repr(expected), verb
        assert rows.schema.field("c").type == found.schema.field("c").type == table.schema.field("c").type, verb


@pytest.mark.parametrize("name", [*COLUMNS, *NOT_KEYS])
def test_what_is_missing_in_a_column_of_any_type_is_known(name: str) -> None:
    column = {**COLUMNS, **NOT_KEYS}[name]
    values, table = column.to_pylist(), table_of(column)
    missing = [value is None for value in values]
    here = [number for number, is_missing in enumerate(missing) if not is_missing]
    assert ids(table.filter(col("c").is_null())) == [number for number, one in enumerate(missing) if one]
    assert ids(table.filter(col("c").is_valid())) == here
    assert ids(table.map(lambda batch: batch, arrow=True).filter(~col("c").is_null())) == here
    assert table.reduce({"c": "count"}).to_arrow()["c"].to_pylist() == [len(here)]
    assert table.reduce({"c": "count"}, by="id").to_arrow()["c"].to_pylist() == [int(not one) for one in missing]
    assert table.with_columns(n=col("c").is_null()).to_arrow()["n"].to_pylist() == missing
    ends = table.reduce({"first": ("c", "first"), "last": ("c", "last")}).to_arrow()
    wanted = [values[here[0]], values[here[-1]]] if here else [None, None]
    assert repr([ends["first"][0].as_py(), ends["last"][0].as_py()]) == repr(wanted)
    copied = table.with_columns(copy=col("c")).to_arrow()
    assert copied["copy"].equals(copied["c"])
    assert repr(table.gather(by="id").to_arrow()["c"].to_pylist()) == repr([[value] for value in values])


@pytest.mark.parametrize("name", NOT_KEYS)
def test_a_column_that_cannot_be_compared_is_no_key(name: str) -> None:
    table = table_of(NOT_KEYS[name])
    if name == "null":  # nothing to compare
        assert ids(table.sort("c")) == [0, 1, 2, 3]
        return
    keyed: list[Callable[[], Any]] = [
        lambda: table.sort("c"),
        lambda: table.distinct("c"),
        lambda: table.distinct(),
        lambda: table.gather(by="c"),
        lambda: table.partition(2, by="c"),
        lambda: table.reduce({"id": "min"}, by="c"),
        lambda: table.reduce(lambda rows: rows, by="c"),
        lambda: table.join(table, on="c"),
    ]
    for act in keyed:
        with pytest.raises(InputError, match="cannot be a key"):
            act()
    for function in ("min", "max", "count_distinct", "sum", "mean", "std", "var", "any", "all"):
        with pytest.raises(InputError, match=f"'{function}' needs"):
            table.reduce({"c": function})


@pytest.mark.parametrize("name", CARRIED)
def test_expressions_do_not_compute_with_what_they_cannot_see(name: str) -> None:
    table = table_of(CARRIED[name])
    column = col("c")
    for expression in (column == 1, column != column, column < column, column.is_in([1]), column.cast("string")):
        for computed in (lambda e=expression: table.filter(e), lambda e=expression: table.with_columns(y=e)):
            with pytest.raises(InputError, match="for which expressions have is_null and is_valid alone"):
                computed().to_arrow()
    for expression in (column + 1, -column, col("id") + column, column.abs()):
        with pytest.raises(InputError, match="for which expressions have is_null and is_valid alone"):
            table.with_columns(y=expression).to_arrow()


def test_run_length_encoded_values_are_decoded() -> None:
    runs = pa.RunEndEncodedArray.from_arrays([1, 3, 4], pa.array([2, None, 1]))
    assert table_of(runs).sort("c").to_arrow()["c"].to_pylist() == [1, 2, None, None]


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_of_any_simple_type_is_a_key(name: str) -> None:
    """Dictionaries could be sorted, gathered and reduced by only where Arrow happened to have a kernel."""
    table = table_of(COLUMNS[name])
    values = COLUMNS[name].to_pylist()
    present = [value for value in dict.fromkeys(values) if value is not None]
    order = present if name == "ordered" else sorted(present)
    keys = [*order, *([None] if None in values else [])]
    expected = [number for key in keys for number, value in enumerate(values) if value == key]
    assert ids(table.sort("c")) == expected
    assert table.reduce({"id": "min"}, by="c").to_arrow()["c"].to_pylist() == keys
    assert table.reduce(lambda rows: {"n": [len(rows["id"])]}, by="c").to_arrow()["c"].to_pylist() == keys
    assert table.gather(by="c").to_arrow()["id"].to_pylist() == [
        [number for number, value in enumerate(values) if value == key] for key in keys
    ]
    assert ids(table.distinct("c")) == [values.index(key) for key in dict.fromkeys(values)]
    matches = [(a, b) for a, x in enumerate(values) for b, y in enumerate(values) if x is not None and x == y]
    joined = table.join(table_of(COLUMNS[name]), on="c").to_arrow()
    assert list(zip(joined["id"].to_pylist(), joined["id_right"].to_pylist(), strict=True)) == matches
    for function in ("min", "max"):
        found = table.reduce({"c": function}).to_arrow()["c"].to_pylist()
        assert found == [order[0] if function == "min" else order[-1]]
    assert table.reduce({"c": "count_distinct"}).to_arrow()["c"].to_pylist() == [len(present)]


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_of_any_simple_type_is_read_from_files(name: str, tmp_path: Path) -> None:
    table = table_of(COLUMNS[name], num_partitions=1)
    pq.write_table(pa.table({"c": COLUMNS[name], "id": [0, 1, 2, 3]}), tmp_path / "a.parquet")
    read = trek.data.open(tmp_path / "a.parquet")
    assert read.to_arrow()["c"].to_pylist() == COLUMNS[name].to_pylist()
    assert ids(read.sort("c")) == ids(table.sort("c"))
    assert [value for batch in read for value in batch.column("c").to_pylist()] == COLUMNS[name].to_pylist()
    assert len(read.to_pandas()) == len(read.to_numpy()["c"]) == 4


FRAMES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "pandas": pd.DataFrame,
    "pandas categories": lambda data: pd.DataFrame({**data, "name": pd.Categorical(data["name"])}),
    "polars": pl.DataFrame,
    "polars categories": lambda data: pl.DataFrame(data, schema_overrides={"name": pl.Categorical}),
    "dict": dict,
    "large": lambda data: pa.table({**data, "name": pa.array(data["name"], pa.large_string())}),
}


@pytest.mark.parametrize("right", FRAMES)
@pytest.mark.parametrize("left", FRAMES)
def test_texts_of_all_kinds_meet_in_joins_and_unions(left: str, right: str) -> None:
    """pandas 3 has large_string, Polars string_view, a dict string: joins and unions between them were refused."""
    lefts = Table.of(FRAMES[left]({"name": ["b", "a"], "x": [1, 2]}))
    rights = Table.of(FRAMES[right]({"name": ["a", "c"], "x": [3, 4]}))
    joined = lefts.join(rights, on="name", how="outer").to_arrow().to_pylist()
    assert [tuple(row.values()) for row in joined] == [("b", 1, None), ("a", 2, 3), ("c", None, 4)]
    united = lefts.union(rights)
    assert united.to_arrow()["name"].to_pylist() == ["b", "a", "a", "c"]
    assert [row["name"] for batch in united for row in batch.to_pylist()] == ["b", "a", "a", "c"]
    assert united.reduce({"x": "sum"}, by="name").to_arrow()["x"].to_pylist() == [5, 1, 4]


def test_integers_of_different_widths_meet_where_one_type_holds_both() -> None:
    narrow, wide = Table.of({"k": np.array([1, 2], np.int8)}), Table.of({"k": np.array([2, 300], np.int64)})
    assert narrow.join(wide, on="k", how="outer").to_arrow()["k"].to_pylist() == [1, 2, 300]
    assert narrow.union(wide).schema.field("k").type == pa.int64()
    large = Table.of({"k": np.array([2**63 + 1], np.uint64)})
    with pytest.raises(InputError, match=r"key 'k' is int8 on the left and uint64 on the right.*cast"):
        narrow.join(large, on="k")
    with pytest.raises(InputError, match=r"column 'k' is int8 in one table and uint64 in the other.*cast"):
        narrow.union(large)


def test_zeros_of_both_signs_are_one_key_and_nan_is_one_too() -> None:
    """-0.0 and 0.0 were two groups, and did not meet in a join."""
    keys = [0.0, -0.0, float("nan"), 1.0, float("nan")]
    table = Table.of({"k": keys, "id": range(5)}, num_partitions=2)
    assert table.reduce({"id": "count"}, by="k").to_arrow()["id"].to_pylist() == [2, 1, 2]
    assert ids(table.distinct("k")) == [0, 2, 3]
    assert len(table.join(table, on="k")) == 9
    assert ids(table.sort("k", descending=True)) == [3, 0, 1, 2, 4]


@pytest.mark.parametrize("rows", [[{"x": None}] * 2 + [{"x": 1}] * 2, [{"x": None}] * 9000 + [{"x": 1}]])
@pytest.mark.parametrize("num_partitions", [1, 2])
def test_a_column_that_is_missing_at_first_has_the_type_of_its_first_value(rows: Any, num_partitions: int) -> None:
    """The first rows fixed its type as missing, and the first value was an error."""
    values = [row["x"] for row in rows]
    same = Table.of(rows, num_partitions=num_partitions).map(lambda row: row, rows=True)
    assert same.to_arrow()["x"].to_pylist() == values
    assert same.schema.field("x").type == pa.int64()
    assert same.reduce({"x": "sum"}).to_arrow()["x"].to_pylist() == [sum(v for v in values if v)]
    assert same.partition(1).window(3).rows().to_arrow()["x"].to_pylist() == values
    generated = Table.generate(lambda context: iter(rows), rows=True)
    assert generated.sort("x").to_arrow()["x"].to_pylist() == sorted(values, key=lambda v: v is None)


NOTHING = Table.of({"x": np.arange(3)}).filter(col("x") > 99)


@pytest.mark.parametrize(
    ("table", "columns"),
    [
        (NOTHING.map(lambda batch: {"y": batch["x"] * 0.5}), ["y"]),
        (NOTHING.map(lambda batch: {"y": batch["x"]}).sort("y"), ["y"]),
        (NOTHING.map(lambda batch: batch).join(NOTHING, on="x"), ["x"]),
        (NOTHING.gather(by="x"), ["x"]),
        (Table.of({"x": np.arange(3)}).window(5, tail="drop").reduce({"x": "sum"}), ["window", "x"]),
        (Table.of({"x": np.arange(3)}).window(5, tail="drop").rows(), ["x", "window"]),
        (NOTHING.flat_map(lambda row: [row]), []),
    ],
)
def test_a_result_without_rows_is_a_result(table: Table, columns: list[str], tmp_path: Path) -> None:
    """It could be neither looked at, collected nor persisted."""
    assert table.to_arrow().column_names == list(table.to_pandas().columns) == columns
    assert len(table) == len(table.head().to_arrow()) == 0
    if columns:
        assert table.persist(tmp_path / "stored").columns == columns
        assert table.filter(col(columns[0]) > 1).to_arrow().num_rows == 0


@pytest.mark.parametrize("name", ["*", "^a.*$"])
def test_names_that_are_patterns_are_refused_where_they_would_be_taken_as_such(name: str) -> None:
    table = Table.of({name: [2, 1], "ab": [3, 4]})
    assert table.to_arrow()[name].to_pylist() == [2, 1]
    with pytest.raises(InputError, match="it is a pattern of names"):
        table.sort(name).to_arrow()
