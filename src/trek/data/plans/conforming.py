"""Batches of one stream with the same columns: types that are not known from the first rows, and errors about others.

A column of nothing but missing values has no type yet (Arrow's `null`). Batches are held back until a later one tells
it, up to a bounded number of rows, so that what comes after can rely on the columns of the first batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce

import pyarrow as pa

from trek.errors import InputError

HELD_ROWS = 1 << 20
_MISSING_REMEDY = " Integers with missing values arrive as floats: return one type from the function, with astype()."


def conform(batch: pa.RecordBatch, schema: pa.Schema, *, where: str) -> pa.RecordBatch:
    """`batch` with exactly the columns of `schema`; columns of nothing but missing values take their type."""
    if batch.schema.equals(schema):
        return batch
    if batch.schema.names != schema.names:
        raise InputError(f"{where}: expected columns {schema.names}, as before, got {batch.schema.names}.")
    for found, wanted in zip(batch.schema, schema, strict=True):
        if merged_type(found.type, wanted.type) != wanted.type:
            raise InputError(
                f"{where}: expected type {wanted.type} for column {found.name!r}, as before, got {found.type}."
                + (_MISSING_REMEDY if pa.types.is_integer(wanted.type) and pa.types.is_floating(found.type) else "")
            )
    arrays = [_typed(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def alike(batches: Iterable[pa.RecordBatch], *, where: str) -> list[pa.RecordBatch]:
    """All batches with the same columns, whichever of them tells a type."""
    held = list(batches)
    if not held:
        return []
    schema = reduce(merged_schema, (batch.schema for batch in held))
    return [conform(batch, schema, where=where) for batch in held]


def settled(
    batches: Iterable[tuple[pa.RecordBatch, str]], *, title: str, num_held_rows: int = HELD_ROWS
) -> Iterator[pa.RecordBatch]:
    """The batches, all with the same columns; the first are held back while a type is not known.

    With each comes its place, for errors.
    """
    held: list[pa.RecordBatch] = []
    schema: pa.Schema | None = None
    rows = 0
    for batch, place in batches:
        where = f"{title}, {place}" if place else title
        is_open = schema is None or bool(held)
        schema = merged_schema(schema or batch.schema, batch.schema) if is_open else schema
        batch = conform(batch, schema, where=where)
        if not is_open:
            yield batch
            continue
        held.append(batch)
        rows += batch.num_rows
        if is_settled(schema) or rows > num_held_rows:
            yield from (conform(one, schema, where=where) for one in held)
            held = []
    yield from alike(held, where=title)


def is_settled(schema: pa.Schema) -> bool:
    """Whether every column has a type."""
    return not any(_has_null(field.type) for field in schema)


def merged_schema(left: pa.Schema, right: pa.Schema) -> pa.Schema:
    """The columns of `left`; types that are not known there are taken from `right`, if its columns are the same."""
    if left.equals(right) or sorted(left.names) != sorted(right.names):
        return left
    fields = [field.with_type(merged_type(field.type, right.field(field.name).type)) for field in left]
    return pa.schema(fields, left.metadata)


def merged_type(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """`left`, with what it leaves open taken from `right`."""
    if left == right or pa.types.is_null(right):
        return left
    if pa.types.is_null(left):
        return right
    if pa.types.is_list(left) and pa.types.is_list(right):
        return pa.list_(left.value_field.with_type(merged_type(left.value_type, right.value_type)))
    if pa.types.is_struct(left) and pa.types.is_struct(right) and left.names == right.names:
        return pa.struct([f.with_type(merged_type(f.type, right.field(f.name).type)) for f in left.fields])
    return left


def _has_null(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        return False
    return pa.types.is_null(kind) or any(_has_null(kind.field(index).type) for index in range(kind.num_fields))


def _typed(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if column.type == kind:
        return column
    return pa.nulls(len(column), kind) if pa.types.is_null(column.type) else column.cast(kind)
