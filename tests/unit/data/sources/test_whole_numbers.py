"""Whole numbers that do not fit into int64 keep all digits, or are refused, in every text format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import trek
from trek.data import Table
from trek.errors import DataUnavailable

LARGE = 2**63 + 1


def write(path: Path, values: list[Any]) -> Path:
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps({"id": value, "n": 1}) + "\n" for value in values))
    else:
        delimiter = "," if path.suffix == ".csv" else "\t"
        lines = [f"{'' if value is None else value}{delimiter}1" for value in values]
        path.write_text("\n".join([f"id{delimiter}n", *lines]) + "\n")
    return path


suffixes = pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl"])


@suffixes
@pytest.mark.parametrize("values", [[LARGE, 2**64 - 1], [1, LARGE], [None, LARGE, 0]])
def test_natural_numbers_above_int64_are_uint64(suffix: str, values: list[Any], tmp_path: Path) -> None:
    found = trek.data.open(write(tmp_path / f"rows{suffix}", values)).to_arrow()
    assert found.schema.field("id").type == pa.uint64()
    assert found["id"].to_pylist() == values
    assert found.column_names == ["id", "n"]


@suffixes
@pytest.mark.parametrize("values", [[LARGE, -1], [2**64], [10**30, 1]])
def test_whole_numbers_that_no_integer_holds_are_refused(suffix: str, values: list[Any], tmp_path: Path) -> None:
    path = write(tmp_path / f"rows{suffix}", values)
    with pytest.raises(DataUnavailable, match=rf"{path.name}.* column 'id' holds whole numbers from .*types="):
        trek.data.open(path).to_arrow()
    told = trek.data.open(path, types={"id": "float64"}).to_arrow()
    assert told["id"].to_pylist() == [float(value) for value in values]


@suffixes
@pytest.mark.parametrize("values", [[1e30, -2.0], [1.5, 1e19], [-1e19, 0.25]])
def test_large_floats_stay_floats(suffix: str, values: list[float], tmp_path: Path) -> None:
    found = trek.data.open(write(tmp_path / f"rows{suffix}", values)).to_arrow()
    assert found["id"].to_pylist() == values
    assert found.schema.field("id").type == pa.float64()


def test_values_inside_lists_and_objects_keep_their_digits(tmp_path: Path) -> None:
    rows = [{"ids": [LARGE, 1], "user": {"id": LARGE, "w": 0.5}}, {"ids": [], "user": {"id": 2, "w": 1e300}}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert trek.data.open(tmp_path / "a.jsonl").to_arrow().to_pylist() == rows


def test_rows_that_a_function_returns_keep_uint64() -> None:
    values = [1, None, LARGE, 2**64 - 1]
    table = Table.of(pa.table({"id": pa.array(values, pa.uint64())}), num_partitions=4)  # the first has 1 alone
    for mapped in (table.map(lambda row: row, rows=True), table.flat_map(lambda row: [row])):
        assert mapped.to_arrow()["id"].to_pylist() == values
        assert mapped.schema.field("id").type == pa.uint64()


def test_large_whole_numbers_in_memory_are_uint64_or_refused() -> None:
    assert Table.of([{"id": LARGE}]).to_arrow()["id"].to_pylist() == [LARGE]
    with pytest.raises(trek.errors.InputError, match="fit neither into int64 nor into uint64"):
        Table.of({"id": [LARGE, -1]})
