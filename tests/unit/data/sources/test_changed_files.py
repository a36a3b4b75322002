"""A file rewritten after open() gives neither doubled nor dropped rows, however it is read: one error names it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import trek
from trek.data import Table, running_on
from trek.data.loaders import DataLoader
from trek.errors import DataUnavailable

NUM_ROWS = 100


def write(path: Path, num_rows: int) -> None:
    values = np.arange(num_rows)
    rows = pa.table({"value": values})
    if path.suffix == ".parquet":
        pq.write_table(rows, path)
    elif path.suffix == ".csv":
        pa.csv.write_csv(rows, path)
    elif path.suffix == ".tsv":
        path.write_text("value\n" + "".join(f"{value}\n" for value in values))
    elif path.suffix == ".jsonl":
        path.write_text("".join(f'{{"value": {value}}}\n' for value in values))
    elif path.suffix == ".npy":
        np.save(path, values)
    elif path.suffix == ".npz":
        np.savez(path, value=values)
    else:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
            writer.write_table(rows)


FORMATS = [".parquet", ".csv", ".tsv", ".jsonl", ".arrow", ".npy", ".npz"]


def on_processes(table: Table) -> None:
    with running_on("processes", num_workers=1):
        table.map(lambda batch: batch).to_arrow()


READERS: dict[str, Callable[[Table], Any]] = {
    "iterate": list,
    "len": len,
    "to_arrow": lambda table: table.to_arrow(),
    "head": lambda table: table.head(NUM_ROWS + 1),
    "for_each": lambda table: table.for_each(id),
    "map": lambda table: table.map(lambda batch: batch).to_arrow(),
    "query": lambda table: table.sort("value").to_arrow(),
    "filter": lambda table: table.filter(trek.col("value") >= 0).to_arrow(),
    "batches in order": lambda table: list(table.batches(10)),
    "batches shuffled": lambda table: list(table.batches(10, shuffle=True)),
    "batches of a filter": lambda table: list(table.filter(trek.col("value") >= 0).batches(10)),
    "loader": lambda table: list(DataLoader(table, 10)),
    "loader that collates": lambda table: list(DataLoader(table, 10, collate_fn=list)),
    "persist": lambda table: table.persist("kept"),
}


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("num_rows", [3, 500], ids=["shrunk", "grown"])
def test_every_way_of_reading_refuses_a_rewritten_file(
    suffix: str, num_rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / f"rows{suffix}"
    write(path, NUM_ROWS)
    opened = {name: trek.data.open(path) for name in READERS}
    for table in opened.values():
        assert len(table) == NUM_ROWS
    write(path, num_rows)
    for name, table in opened.items():
        with pytest.raises(DataUnavailable, match=rf"{path.name} has changed"):
            READERS[name](table)
    assert len(trek.data.open(path)) == num_rows


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_file_rewritten_between_two_epochs_is_refused(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"rows{suffix}"
    write(path, NUM_ROWS)
    batches = trek.data.open(path).batches(10)
    assert sum(len(value) for (value,) in batches) == NUM_ROWS
    write(path, 500)
    with pytest.raises(DataUnavailable, match="has changed"):
        next(iter(batches))


def test_a_file_rewritten_while_it_is_read_is_refused_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    write(path, NUM_ROWS)
    batches = iter(trek.data.open(path).batches(10))
    next(batches)
    write(path, 500)
    with pytest.raises(DataUnavailable, match="has changed"):
        list(batches)


def test_workers_in_other_processes_refuse_a_rewritten_file(tmp_path: Path) -> None:
    write(tmp_path / "rows.parquet", NUM_ROWS)
    table = trek.data.open(tmp_path / "rows.parquet")
    write(tmp_path / "rows.parquet", 3)
    with pytest.raises(DataUnavailable, match=r"rows.parquet has changed"):
        on_processes(table)


def test_other_content_of_the_same_size_is_noticed_by_its_time(tmp_path: Path) -> None:
    path = tmp_path / "rows.npy"
    write(path, NUM_ROWS)
    table = trek.data.open(path)
    np.save(path, np.arange(NUM_ROWS)[::-1])
    os.utime(path, ns=(0, 0))
    with pytest.raises(DataUnavailable, match="has changed"):
        table.to_arrow()


def test_a_file_behind_a_url_is_noticed_too(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    memory.pipe_file("/changed/rows.csv", b"value\n1\n2\n")
    table = trek.data.open("memory://changed/rows.csv")
    memory.pipe_file("/changed/rows.csv", b"value\n3\n4\n")
    with pytest.raises(DataUnavailable, match="has changed"):
        table.to_arrow()
    memory.rm("/changed", recursive=True)


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    write(tmp_path / "rows.csv", 3)
    table = trek.data.open(tmp_path / "rows.csv")
    (tmp_path / "rows.csv").unlink()
    for read in (list, len, lambda table: list(table.batches(1))):
        with pytest.raises(DataUnavailable, match=r"rows.csv no longer exists"):
            read(table)


def test_a_plan_that_keeps_its_rows_goes_on_with_them(tmp_path: Path) -> None:
    write(tmp_path / "rows.csv", NUM_ROWS)
    table = trek.data.open(tmp_path / "rows.csv").cache()
    write(tmp_path / "rows.csv", 3)
    assert (len(table), len(list(table.batches(10)))) == (NUM_ROWS, 10)
