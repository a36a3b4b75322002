"""ArrowStream: an Arrow IPC stream with a column for each input; the answer has one for each output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from trek.errors import InputError
from trek.serve.codecs.base import Answer, Codec, Request


class ArrowStream(Codec):
    """Columns of tensors, as `trek.data` writes them, of lists of one length, of numbers or of text."""

    def decode(self, body: memoryview, *, headers: Mapping[str, str]) -> Request:
        """The columns."""
        import pyarrow as pa

        try:
            table = pa.ipc.open_stream(pa.py_buffer(body)).read_all()
            table.validate(full=True)
        except pa.ArrowException as error:
            raise InputError(f"the body is not an Arrow stream: {error}.") from None
        return Request({name: to_rows(table.column(name)) for name in table.column_names})

    def encode(self, outputs: Mapping[str, np.ndarray], *, request: Request, model: str, version: str) -> Answer:
        """The columns."""
        import pyarrow as pa

        from trek.data.tensors import to_column

        columns = {name: to_column(array, name=name) for name, array in outputs.items()}
        batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        return Answer(sink.getvalue().to_pybytes(), "application/vnd.apache.arrow.stream")


def to_rows(column: Any) -> np.ndarray:
    """A column as one array, rows first; InputError for columns with missing values."""
    import pyarrow as pa

    from trek.data.tensors import to_numpy

    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if array.null_count:
        raise InputError(f"the column has {array.null_count} missing values, which a model cannot take. Fill them.")
    if pa.types.is_list(array.type) or pa.types.is_large_list(array.type) or pa.types.is_fixed_size_list(array.type):
        return np.asarray(array.to_pylist())
    return to_numpy(array)
