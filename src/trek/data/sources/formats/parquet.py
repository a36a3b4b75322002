"""Parquet files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

import pyarrow as pa

from trek.data import tensors
from trek.data.sources.formats.base import Asked, FileFormat
from trek.data.sources.memory import BATCH_ROWS


class ParquetFormat(FileFormat):
    """Row group after row group."""

    is_counted = True

    def read(self, content: BinaryIO, *, url: str, asked: Asked) -> Iterator[pa.RecordBatch]:
        """A bounded number of rows at a time; columns that were not asked for are not decoded."""
        import pyarrow.parquet as pq

        columns = None if asked.columns is None else list(asked.columns)
        with pq.ParquetFile(content, pre_buffer=False) as file:
            if not file.metadata.num_rows:  # no batch would come, and the columns would not be known
                yield tensors.unpack(_no_rows(file.schema_arrow))
            for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=columns):
                yield tensors.unpack(batch)

    def count_rows(self, content: BinaryIO, *, url: str) -> int:
        """Rows, as the file's footer says."""
        import pyarrow.parquet as pq

        return int(pq.read_metadata(content).num_rows)


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
