"""Arrow IPC files and streams."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa

from trek.data.column_types import empty_table
from trek.data.execution.polars_engine import load_polars
from trek.data.sources.formats.base import Asked, FileFormat
from trek.data.sources.formats.scanning import all_alike, typed

if TYPE_CHECKING:
    import polars as pl


class ArrowFormat(FileFormat):
    """Batch after batch, as they were written."""

    is_described = True
    is_scanned = True

    def read(self, content: BinaryIO, *, url: str, asked: Asked) -> Iterator[pa.RecordBatch]:
        """An Arrow IPC file, or stream."""
        reader = _open(content)
        if isinstance(reader, pa.ipc.RecordBatchStreamReader):
            yield from reader
        else:
            yield from (reader.get_batch(index) for index in range(reader.num_record_batches))

    def columns(self, content: BinaryIO, *, url: str) -> pa.RecordBatch | None:
        """As the file says, if one of its batches has rows."""
        found = next((batch for batch in self.read(content, url=url, asked=Asked()) if batch.num_rows), None)
        if found is None:
            return None
        arrays = [column.combine_chunks() for column in empty_table(found.schema).columns]
        return pa.RecordBatch.from_arrays(arrays, schema=found.schema)

    def scan(self, paths: Sequence[str], *, schema: pa.Schema) -> pl.LazyFrame | None:
        """Mapped files; streams are read one by one."""
        if not all_alike(paths, schema, read_schema=_schema_of_file):
            return None
        return typed(load_polars().scan_ipc(list(paths), glob=False, hive_partitioning=False), schema)


def _open(content: BinaryIO) -> pa.ipc.RecordBatchFileReader | pa.ipc.RecordBatchStreamReader:
    try:
        return pa.ipc.open_file(content)
    except pa.ArrowInvalid:
        content.seek(0)
        return pa.ipc.open_stream(content)


def _schema_of_file(path: str) -> pa.Schema:
    with pa.memory_map(path) as file:
        return pa.ipc.open_file(file).schema
