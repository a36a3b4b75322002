"""Files by folder, pattern and list, hive partitions, and the options of CSV files."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trek
from trek import col
from trek.data import Table
from trek.errors import DataUnavailable, InputError


def rows(table: Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.to_arrow().to_pylist()
    return found


def write(path: Path, text: str, *, encoding: str = "utf-8") -> Path:
    path.write_bytes(gzip.compress(text.encode(encoding)) if path.suffix == ".gz" else text.encode(encoding))
    return path


@pytest.fixture
def hive(tmp_path: Path) -> Path:
    table = pa.table({"year": [2020, 2021, None], "city": ["a b", "007", "c"], "x": [1, 2, 3]})
    pq.write_to_dataset(table, tmp_path / "hive", partition_cols=["year", "city"])
    return tmp_path / "hive"


def test_hive_partitions_give_columns(hive: Path) -> None:
    """A partitioned folder was read without its partition columns, silently."""
    expected = [
        {"x": 1, "year": 2020, "city": "a b"},
        {"x": 2, "year": 2021, "city": "007"},
        {"x": 3, "year": None, "city": "c"},
    ]
    table = trek.data.open(hive)
    assert rows(table.sort("x")) == expected
    assert [row["city"] for batch in table.sort("x") for row in batch.to_pylist()] == ["a b", "007", "c"]
    assert rows(table.filter(col("year") > 2020)) == expected[1:2]
    assert rows(table.select("city").sort("city")) == [{"city": "007"}, {"city": "a b"}, {"city": "c"}]
    assert rows(table.reduce({"x": "sum"}, by="year"))[0] == {"year": 2020, "x": 1}
    assert [batch.column("year")[0].as_py() for batch in table] == [2020, 2021, None]


def test_a_pattern_of_hive_files_gives_their_columns_too(hive: Path) -> None:
    """Patterns were refused as files that do not exist."""
    found = rows(trek.data.open(f"{hive}/year=202*/*/*.parquet"))
    assert [(row["x"], row["year"]) for row in found] == [(1, 2020), (2, 2021)]


def test_patterns_are_in_order_and_lists_as_they_are_given(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        write(tmp_path / f"part{number}.csv", f"x\n{number}\n")
    assert [row["x"] for row in rows(trek.data.open(f"{tmp_path}/part[12].csv"))] == [1, 2]
    given = [tmp_path / "part3.csv", str(tmp_path / "part1.csv")]
    assert [row["x"] for row in rows(trek.data.open(given))] == [3, 1]
    with pytest.raises(InputError, match="no file matches"):
        trek.data.open(f"{tmp_path}/none*.csv")
    with pytest.raises(InputError, match="an empty list"):
        trek.data.open([])


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("1;2\n", {"header": False, "delimiter": ";"}, [{"f0": 1, "f1": 2}]),
        ("1;2\n", {"header": ["a", "b"], "delimiter": ";"}, [{"a": 1, "b": 2}]),
        ("a|b\n'x|y'|1\n", {"delimiter": "|", "quote": "'"}, [{"a": "x|y", "b": 1}]),
        ('a,b\n"x,1\n', {"quote": False}, [{"a": '"x', "b": 1}]),
        ('a,b\n"x\ny",1\n', {}, [{"a": "x\ny", "b": 1}]),
        ("a\n007\n", {"types": {"a": "string"}}, [{"a": "007"}]),
        (f"a\n{2**63 + 5}\n{2**64 - 1}\n", {}, [{"a": 2**63 + 5}, {"a": 2**64 - 1}]),
        ("a\n1.5\n2\n", {}, [{"a": 1.5}, {"a": 2.0}]),
    ],
)
@pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
def test_csv_files_are_read_as_they_are_written(
    text: str, options: dict[str, Any], expected: list[dict[str, Any]], suffix: str, tmp_path: Path
) -> None:
    """There were no options; an id above 2**63 became a float, and so another id."""
    assert rows(trek.data.open(write(tmp_path / f"a{suffix}", text), **options)) == expected


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_csv_files_have_encodings(encoding: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "naïve,x\nä,1\n", encoding=encoding)
    assert rows(trek.data.open(path, encoding=encoding)) == [{"naïve": "ä", "x": 1}]
    with pytest.raises(DataUnavailable, match="cannot be read"):
        rows(trek.data.open(path))


def test_zstandard_files_are_read(tmp_path: Path) -> None:
    """They were parsed as they are, compressed."""
    with pa.CompressedOutputStream(str(tmp_path / "a.csv.zst"), "zstd") as file:
        file.write(b"a,b\n%d,x\n" % (2**63 + 1))
    assert rows(trek.data.open(tmp_path / "a.csv.zst")) == [{"a": 2**63 + 1, "b": "x"}]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delimiter": ";;"}, "delimiter must be one character"),
        ({"quote": "''"}, "quote must be one character"),
        ({"encoding": "klingon"}, "'klingon' is not known"),
    ],
)
def test_options_that_no_file_has_are_refused(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        trek.data.open(write(tmp_path / "a.csv", "a\n1\n"), **options)


def test_options_are_refused_for_files_that_have_none(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    with pytest.raises(InputError, match="delimiter= is for text files"):
        trek.data.open(tmp_path / "a.parquet", delimiter=";")


def test_a_header_alone_is_a_table_without_rows(tmp_path: Path) -> None:
    """The columns were lost, and every operation failed."""
    empty = trek.data.open(write(tmp_path / "a.csv", "a,b\n"))
    assert empty.columns == ["a", "b"]
    assert len(empty.to_pandas()) == 0
    assert rows(empty.union(Table.of({"a": [1], "b": ["x"]}))) == [{"a": 1, "b": "x"}]
    assert rows(Table.of({"a": [1]}).join(empty, on="a", how="left")) == [{"a": 1, "b": None}]


@pytest.mark.parametrize("value", ["5", "abc", "2020-01-01"])
def test_a_csv_column_that_is_empty_at_first_has_the_type_of_its_first_value(value: str, tmp_path: Path) -> None:
    """Its type was fixed as missing, and the first value was an error."""
    path = write(tmp_path / "a.csv", "a,b\n" + ",1\n" * 200_000 + f"{value},1\n")
    (last,) = trek.data.open(path).to_arrow()["a"].to_pylist()[-1:]
    assert str(last) == value


def test_a_json_column_that_is_null_at_first_has_the_type_of_its_first_value(tmp_path: Path) -> None:
    """Every later value was refused as of another type."""
    path = write(tmp_path / "a.jsonl", '{"a": null, "b": 1}\n' * 100_000 + '{"a": 3, "b": 1}\n')
    assert trek.data.open(path).to_arrow()["a"].to_pylist()[-1] == 3


def test_a_damaged_file_is_named_as_such_whoever_reads_it(tmp_path: Path) -> None:
    """Polars' error was taken for a mistake in the plan, and Arrow's came as it was."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": [str(n) for n in range(200_000)]}), path, row_group_size=20_000)
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 30_000] = b"\xff" * 30_000
    path.write_bytes(content)
    for read in (lambda t: t.sort("x").to_arrow(), lambda t: t.to_arrow(), list):
        with pytest.raises(DataUnavailable, match=r"damaged|cannot be read"):
            read(trek.data.open(path))


def test_types_of_a_column_that_is_not_there_are_refused(tmp_path: Path) -> None:
    """A misspelt name had no effect, and nobody was told."""
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match=r"types= names the column 'c', which .*a\.csv does not have. There are: a, b"):
        trek.data.open(tmp_path / "a.csv", types={"c": "int32"}).to_arrow()


def test_a_header_that_is_a_text_is_refused(tmp_path: Path) -> None:
    """Each of its letters became the name of a column."""
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="header must be True, False or a list of column names, got 'no'"):
        trek.data.open(tmp_path / "a.csv", header="no")
