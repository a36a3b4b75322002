"""Parquet files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa

from trek.data import tensors
from trek.data.column_types import empty_table
from trek.data.execution.polars_engine import load_polars
from trek.data.sources.formats.base import Asked, FileFormat
from trek.data.sources.formats.scanning import all_alike, typed
from trek.data.sources.memory import BATCH_ROWS

if TYPE_CHECKING:
    import polars as pl
    import pyarrow.parquet as pq


class ParquetFormat(FileFormat):
    """Row group after row group."""

    is_counted = True
    is_described = True
    is_scanned = True

    def read(self, content: BinaryIO, *, url: str, asked: Asked) -> Iterator[pa.RecordBatch]:
        """A bounded number of rows at a time; columns that were not asked for are not decoded."""
        import pyarrow.parquet as pq

        columns = None if asked.columns is None else list(asked.columns)
        with pq.ParquetFile(content, pre_buffer=False, page_checksum_verification=True) as file:
            if not file.metadata.num_rows:  # no batch would come, and the columns would not be known
                yield _no_rows(file)
            for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=columns):
                yield tensors.unpack(batch)

    def scan(self, paths: Sequence[str], *, schema: pa.Schema) -> pl.LazyFrame | None:
        """Columns and row groups that are not needed are not read; files that differ in type are read one by one."""
        import pyarrow.parquet as pq

        if not all_alike(paths, schema, read_schema=pq.read_schema):
            return None
        scanned = load_polars().scan_parquet(list(paths), glob=False, hive_partitioning=False, extra_columns="ignore")
        return typed(scanned, schema)

    def columns(self, content: BinaryIO, *, url: str) -> pa.RecordBatch | None:
        """As the file's footer says."""
        import pyarrow.parquet as pq

        with pq.ParquetFile(content, pre_buffer=False) as file:
            return _no_rows(file) if file.metadata.num_rows else None

    def filled(self, content: BinaryIO, names: frozenset[str]) -> frozenset[str]:
        """As the statistics of every row group say; they may be left out."""
        import pyarrow.parquet as pq

        metadata = pq.read_metadata(content)
        columns = [metadata.schema.column(index) for index in range(metadata.num_columns)]
        places = {column.name: index for index, column in enumerate(columns) if column.name == column.path}
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        return frozenset(
            name for name in names if name in places and all(_is_filled(group.column(places[name])) for group in groups)
        )

    def count_rows(self, content: BinaryIO, *, url: str) -> int:
        """Rows, as the file's footer says."""
        import pyarrow.parquet as pq

        return int(pq.read_metadata(content).num_rows)


def _is_filled(chunk: pq.ColumnChunkMetaData) -> bool:
    statistics = chunk.statistics
    return statistics is not None and statistics.has_null_count and statistics.null_count == 0


def _no_rows(file: pq.ParquetFile) -> pa.RecordBatch:
    schema = file.schema_arrow
    arrays = [column.combine_chunks() for column in empty_table(schema).columns]
    return tensors.unpack(pa.RecordBatch.from_arrays(arrays, schema=schema))
