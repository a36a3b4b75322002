"""Between Arrow and Polars: rows of either as rows of the other, with the types that the plan says.

Polars has nearly every type of Arrow, tensors included. Dictionaries travel as their values (as an Enum where their
categories are ordered); what Polars has no type for is replaced by row numbers and fetched afterwards, see `Carrier`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trek.data.column_types import empty_table
from trek.data.execution.polars_engine import load_polars
from trek.data.plans.capabilities import is_known
from trek.data.tensors import to_column
from trek.errors import InputError

if TYPE_CHECKING:
    import polars as pl


class Carrier:
    """Columns of types that Polars does not know: each travels as the numbers of its values in a common list.

    A missing value has no number, so that it is missing to Polars too.
    """

    def __init__(self) -> None:
        self._held: dict[pa.DataType, list[pa.Array]] = {}
        self._counts: dict[pa.DataType, int] = {}

    def put(self, column: pa.ChunkedArray) -> pa.Array:
        """Keep the values of a column; their numbers."""
        start = self._counts.get(column.type, 0)
        self._held.setdefault(column.type, []).extend(column.chunks)
        self._counts[column.type] = start + len(column)
        return pa.array(np.arange(start, start + len(column)), mask=np.asarray(column.is_null()))

    def take(self, numbers: pa.Array, kind: pa.DataType) -> pa.Array:
        """The values of these numbers, in their order; none where a number is missing."""
        values = pa.chunked_array(self._held.get(kind, []), type=kind)
        return to_column(values, name="").take(numbers)


def to_polars(table: pa.Table, carrier: Carrier) -> pl.DataFrame:
    """The rows of an Arrow table; numbers, texts and tensors over the same memory."""
    _require_plain(table.column_names)
    columns = [_sent(column, carrier) for column in table.columns]
    frame = load_polars().from_arrow(pa.table(dict(zip(table.column_names, columns, strict=True))), rechunk=False)
    return _with_enums(frame, table)


def empty_frame(schema: pa.Schema) -> pl.DataFrame:
    """No rows, with the columns that rows of `schema` have in Polars; categories are not known."""
    return to_polars(empty_table(schema), Carrier())


def to_arrow(frame: pl.DataFrame, schema: pa.Schema, carrier: Carrier) -> list[pa.RecordBatch]:
    """The rows of a Polars frame in the types of `schema`, one batch for each of its chunks."""
    found = frame.to_arrow(compat_level=load_polars().CompatLevel.oldest())
    columns = [_received(column, field, carrier) for column, field in zip(found.columns, schema, strict=True)]
    batches: list[pa.RecordBatch] = pa.Table.from_arrays(columns, schema=schema).to_batches()
    return batches


def arrow_type(kind: pl.DataType) -> pa.DataType:
    """The type that a computed column of Polars' type `kind` has in a Table."""
    empty = load_polars().Series("", [], dtype=kind).to_arrow(compat_level=load_polars().CompatLevel.oldest())
    found: pa.DataType = empty.type
    return pa.string() if pa.types.is_large_string(found) else found


def _require_plain(names: Sequence[str]) -> None:
    """Refuse names that are patterns to Polars, which would compute something else."""
    for name in names:
        if name == "*" or (name.startswith("^") and name.endswith("$")):
            raise InputError(f"a column cannot be called {name!r}: it is a pattern of names. Give it another name.")


def _sent(column: pa.ChunkedArray, carrier: Carrier) -> pa.ChunkedArray | pa.Array:
    if not is_known(column.type):
        return carrier.put(column)
    if pa.types.is_dictionary(column.type):
        return column.cast(column.type.value_type)
    return column


def _with_enums(frame: pl.DataFrame, table: pa.Table) -> pl.DataFrame:
    """Columns with ordered categories as Enums, which Polars compares by the order of the categories."""
    pl = load_polars()
    casts = []
    for field in table.schema:
        if pa.types.is_dictionary(field.type) and field.type.ordered and table.num_rows:
            categories = table.column(field.name).unify_dictionaries().chunk(0).dictionary.to_pylist()
            if not all(isinstance(category, str) for category in categories):
                raise InputError(f"column {field.name!r} has ordered categories that are not texts. Convert it first.")
            casts.append(pl.col(field.name).cast(pl.Enum(categories)))
    return frame.with_columns(casts) if casts else frame


def _received(column: pa.ChunkedArray, field: pa.Field, carrier: Carrier) -> pa.ChunkedArray:
    if column.type == field.type:
        return column
    chunks = [_received_chunk(chunk, field.type, carrier) for chunk in column.chunks]
    return pa.chunked_array(chunks, type=field.type)


def _received_chunk(chunk: pa.Array, kind: pa.DataType, carrier: Carrier) -> pa.Array:
    if not is_known(kind) and pa.types.is_integer(chunk.type):
        return carrier.take(chunk, kind)
    if pa.types.is_dictionary(kind):
        return _encoded(chunk, kind)
    if isinstance(kind, pa.FixedShapeTensorType):
        storage = chunk.storage if isinstance(chunk.type, pa.BaseExtensionType) else chunk
        return pa.ExtensionArray.from_storage(kind, storage.cast(kind.storage_type))
    if pa.types.is_list(kind) and pa.types.is_large_list(chunk.type):
        return _narrow_list(chunk, kind, carrier)
    return chunk.cast(kind)


def _encoded(chunk: pa.Array, kind: pa.DataType) -> pa.Array:
    encoded = chunk if pa.types.is_dictionary(chunk.type) else pc.dictionary_encode(chunk)
    values = encoded.dictionary.cast(kind.value_type)
    return pa.DictionaryArray.from_arrays(encoded.indices.cast(kind.index_type), values, ordered=kind.ordered)


def _narrow_list(chunk: pa.Array, kind: pa.DataType, carrier: Carrier) -> pa.Array:
    """A list with offsets of 32 bits, whatever its values are: Arrow casts no list of tensors."""
    start, stop = (chunk.offsets[0].as_py(), chunk.offsets[-1].as_py()) if len(chunk.offsets) else (0, 0)
    offsets = pc.subtract(chunk.offsets, start).cast(pa.int32())
    values = chunk.values.slice(start, stop - start)
    values = values if values.type == kind.value_type else _received_chunk(values, kind.value_type, carrier)
    mask = chunk.is_null() if chunk.null_count else None
    return pa.ListArray.from_arrays(offsets, values, type=kind, mask=mask)


def batches_to_polars(batches: Iterable[pa.RecordBatch], schema: pa.Schema, carrier: Carrier) -> pl.DataFrame:
    """The rows of all `batches`, which have the columns of `schema`."""
    held: Sequence[pa.RecordBatch] = [batch for batch in batches if batch.num_rows]
    return to_polars(pa.Table.from_batches(held, schema), carrier)
