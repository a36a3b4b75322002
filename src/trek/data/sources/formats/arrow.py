"""Arrow IPC files and streams."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa

from trek.data.execution.polars_engine import load_polars
from trek.data.sources.formats.base import Asked, FileFormat
from trek.data.sources.formats.scanning import all_alike, typed

if TYPE_CHECKING:
    import polars as pl


class ArrowFormat(FileFormat):
    """Batch after batch, as they were written."""

    is_scanned = True

    def read(self, content: BinaryIO, *, url: str, asked: Asked) -> Iterator[pa.RecordBatch]:
        """An Arrow IPC file, or stream."""
        try:
            reader = pa.ipc.open_file(content)
        except pa.ArrowInvalid:
            content.seek(0)
            yield from pa.ipc.open_stream(content)
            return
        yield from (reader.get_batch(index) for index in range(reader.num_record_batches))

    def scan(self, paths: Sequence[str], *, schema: pa.Schema) -> pl.LazyFrame | None:
        """Mapped files; streams are read one by one."""
        if not all_alike(paths, schema, read_schema=_schema_of_file):
            return None
        return typed(load_polars().scan_ipc(list(paths), glob=False, hive_partitioning=False), schema)


def _schema_of_file(path: str) -> pa.Schema:
    with pa.memory_map(path) as file:
        return pa.ipc.open_file(file).schema
