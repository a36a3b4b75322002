"""A large encoded table is decoded once: what is known of its size is not found out by reading it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trek.data import Table
from trek.data.batching import decoded
from trek.data.loaders import DataLoader
from trek.data.sources.files import FileSource, open_files
from trek.data.sources.formats.base import Asked
from trek.data.sources.formats.parquet import ParquetFormat
from trek.data.sources.memory import BATCH_ROWS
from trek.world import World

NUM_ROWS = 5 * BATCH_ROWS


class CountingFormat(ParquetFormat):
    """Counts the rows that were decoded."""

    num_decoded = 0

    def read(self, content: BinaryIO, *, url: str, asked: Asked) -> Iterator[pa.RecordBatch]:
        for batch in super().read(content, url=url, asked=asked):
            CountingFormat.num_decoded += batch.num_rows
            yield batch


def test_a_large_parquet_file_is_decoded_once_for_shuffling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoded, "_SMALL_BYTES", 2 * BATCH_ROWS * 8)
    pq.write_table(pa.table({"x": np.arange(NUM_ROWS)}), tmp_path / "rows.parquet")
    source = FileSource(open_files(str(tmp_path / "rows.parquet")).files, format=CountingFormat())
    CountingFormat.num_decoded = 0
    loader = DataLoader(Table(source), 100, shuffle=True).bind(World(), seed=0)
    rows = sorted(int(x) for batch in loader.batches(0) for x in batch.data[0])
    assert rows == list(range(NUM_ROWS))
    assert CountingFormat.num_decoded <= NUM_ROWS + BATCH_ROWS, "once, and the first batch for the columns"


def test_rows_of_unknown_size_are_read_once_to_find_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoded, "_SMALL_BYTES", 2 * BATCH_ROWS * 8)
    pq.write_table(pa.table({"x": [str(i) for i in range(NUM_ROWS)]}), tmp_path / "rows.parquet")
    table = Table(FileSource(open_files(str(tmp_path / "rows.parquet")).files, format=CountingFormat()))
    assert decoded.few_rows(table) is None
    CountingFormat.num_decoded = 0
    assert decoded.few_rows(table) is None
    assert CountingFormat.num_decoded == 0
