"""Arrow IPC files and streams."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

import pyarrow as pa

from trek.data.sources.formats.base import Asked, FileFormat


class ArrowFormat(FileFormat):
    """Batch after batch, as they were written."""

    def read(self, content: BinaryIO, *, url: str, asked: Asked) -> Iterator[pa.RecordBatch]:
        """An Arrow IPC file, or stream."""
        try:
            reader = pa.ipc.open_file(content)
        except pa.ArrowInvalid:
            content.seek(0)
            yield from pa.ipc.open_stream(content)
            return
        yield from (reader.get_batch(index) for index in range(reader.num_record_batches))
