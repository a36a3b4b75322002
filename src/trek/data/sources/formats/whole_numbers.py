"""Whole numbers in text files that Arrow's readers take for floats, because they do not fit into int64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from trek.errors import DataUnavailable

_INT64_END = 2.0**63


def may_be_whole(column: pa.Array | pa.ChunkedArray) -> bool:
    """Whether a column holds floats, at any depth, so large that they may be whole numbers which lost digits."""
    kind = column.type
    if pa.types.is_float64(kind):
        return bool(pc.any(pc.greater_equal(pc.abs(column), _INT64_END)).as_py())
    if pa.types.is_list(kind):
        return may_be_whole(pc.list_flatten(column))
    if pa.types.is_struct(kind):
        return any(may_be_whole(pc.struct_field(column, index)) for index in range(kind.num_fields))
    return False


def exact_type(kind: pa.DataType, values: Sequence[Any], *, name: str, where: str) -> pa.DataType:
    """`kind` with uint64 where floats are whole numbers in the file; refused where no integer of 64 bits holds all."""
    present = [value for value in values if value is not None]
    if pa.types.is_float64(kind) and present and all(type(value) is int for value in present):
        return _whole_type(present, name=name, where=where)
    within = {"name": name, "where": where}
    if pa.types.is_list(kind):
        items = [item for value in present for item in value]
        return pa.list_(kind.value_field.with_type(exact_type(kind.value_type, items, **within)))
    if pa.types.is_struct(kind):
        columns = {field.name: [value.get(field.name) for value in present] for field in kind}
        return pa.struct([field.with_type(exact_type(field.type, columns[field.name], **within)) for field in kind])
    return kind


def _whole_type(values: Sequence[int], *, name: str, where: str) -> pa.DataType:
    if min(values) >= 0 and max(values) < 2**64:
        return pa.uint64()
    raise DataUnavailable(
        f"{where}: column {name!r} holds whole numbers from {min(values)} to {max(values)}, which no integer type of "
        f"64 bits has. As floats they lose digits, which must be said: open(…, types={{{name!r}: 'float64'}})."
    )
