"""ArrowStream: an Arrow IPC stream with a column for each input; the answer has one for each output."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from trek.errors import InputError
from trek.serve.codecs.base import Answer, Codec, Request, check_names


class ArrowStream(Codec):
    """Columns of tensors, as `trek.data` writes them, of lists of one length, of numbers or of text."""

    def decode(self, body: memoryview, *, headers: Mapping[str, str]) -> Request:
        """The columns."""
        import pyarrow as pa

        from trek.serve.codecs.arrow_size import unpacked_bytes

        try:
            self.require_size(unpacked_bytes(pa.ipc.MessageReader.open_stream(body)))
            reader = pa.ipc.open_stream(body)
            check_names(reader.schema.names)
            for field in reader.schema:
                _require_plain(field)
            table = reader.read_all()
            table.validate(full=True)
        except InputError:
            raise
        except (pa.ArrowException, ValueError, struct.error, OSError) as error:
            raise InputError(f"the body is not an Arrow stream: {error}.") from None
        for column in table.columns:
            self.require_size(_decoded_bytes(column))
        return Request({name: to_rows(table.column(name), name=name) for name in table.column_names})

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


def _require_plain(field: Any) -> None:
    """InputError for a column of a type that stands for more values than it has, or that no array holds."""
    import pyarrow as pa

    kind = field.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    kind = getattr(kind, "storage_type", kind)
    while _are_lists(kind):
        if pa.types.is_fixed_size_list(kind) and not kind.list_size:
            break
        kind = kind.value_type
    if not (pa.types.is_primitive(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise InputError(
            f"column {field.name!r} has the type {field.type}, which a model cannot take. Send numbers, booleans, "
            "texts or lists of them."
        )


def _decoded_bytes(column: Any) -> int:
    """What the texts of a column take that names them by number; 0 for other columns."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_dictionary(column.type) or pa.types.is_primitive(column.type.value_type):
        return 0
    lengths = (pc.sum(pc.binary_length(one.dictionary).take(one.indices)).as_py() for one in column.chunks)
    return sum(length or 0 for length in lengths)


def to_rows(column: Any, *, name: str) -> np.ndarray:
    """The column called `name` as one array, rows first; InputError for missing values and lists of several lengths."""
    import pyarrow as pa

    from trek.data.tensors import to_numpy

    array, shape = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column, [len(column)]
    while True:
        if array.null_count:
            raise InputError(
                f"column {name!r} has {array.null_count} missing values, which a model cannot take. Fill them."
            )
        if not _are_lists(array.type):
            break
        shape.append(_length_of_lists(array, name=name))
        array = array.flatten()
    values = to_numpy(array)
    return values.reshape(*shape, *values.shape[1:]) if len(shape) > 1 else values


def _are_lists(kind: Any) -> bool:
    import pyarrow as pa

    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _length_of_lists(array: Any, *, name: str) -> int:
    """How many values each list has; InputError if they differ."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_fixed_size_list(array.type):
        return int(array.type.list_size)
    lengths = pc.min_max(pc.list_value_length(array)).as_py()
    if lengths["min"] != lengths["max"]:
        raise InputError(
            f"column {name!r} has lists of {lengths['min']} to {lengths['max']} values, but a model takes lists of one "
            "length. Pad or crop them."
        )
    return int(lengths["min"] or 0)
