"""The Arrow types of columns: which ones Tables hold, and which of two unlike ones both can become.

Text and bytes are kept as `string` or `large_string` (`binary`, `large_binary`); views of them, which Arrow cannot
filter or take from, become large ones, and runs become values. Dictionaries have 32-bit indices, so that categories can
be added. Knows nothing of values; see `trek.data.tensors`.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from trek.errors import InputError


def kept_type(kind: pa.DataType) -> pa.DataType:
    """The type that a column of `kind` has in a Table."""
    if pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_binary_view(kind):
        return pa.large_binary()
    if pa.types.is_run_end_encoded(kind):
        return kept_type(kind.value_type)
    if pa.types.is_dictionary(kind):
        return pa.dictionary(pa.int32(), kept_type(kind.value_type), kind.ordered)
    if pa.types.is_list(kind) or pa.types.is_list_view(kind):
        return pa.list_(_kept_field(kind.value_field))
    if pa.types.is_large_list(kind) or pa.types.is_large_list_view(kind):
        return pa.large_list(_kept_field(kind.value_field))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_kept_field(kind.value_field), kind.list_size)
    if pa.types.is_struct(kind):
        return pa.struct([_kept_field(kind.field(index)) for index in range(kind.num_fields)])
    return kind


def kept_table(table: pa.Table) -> pa.Table:
    """`table` with the types that Tables hold; the same object where it has them already."""
    schema = kept_schema(table.schema)
    if schema.equals(table.schema):
        return table
    return pa.Table.from_arrays([_cast(c, f.type) for c, f in zip(table.columns, schema, strict=True)], schema=schema)


def kept_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """`batch` with the types that Tables hold; the same object where it has them already."""
    schema = kept_schema(batch.schema)
    if schema.equals(batch.schema):
        return batch
    arrays = [_cast(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def kept_schema(schema: pa.Schema) -> pa.Schema:
    """`schema` with the types that Tables hold."""
    kinds = [kept_type(field.type) for field in schema]
    if all(kind == field.type for kind, field in zip(kinds, schema, strict=True)):
        return schema
    fields = [field.with_type(kind) for kind, field in zip(kinds, schema, strict=True)]
    return pa.schema(fields, schema.metadata)


def empty_table(schema: pa.Schema) -> pa.Table:
    """No rows, with any columns: Arrow's own cannot make tensors whose dimensions are permuted."""
    return pa.Table.from_arrays([_no_values(field.type) for field in schema], schema=schema)


def common_type(kinds: Sequence[pa.DataType], *, name: str, verb: str) -> pa.DataType:
    """The type that holds every value of all `kinds` exactly: of texts, of integers, of floats; else an error."""
    result = kinds[0]
    for kind in kinds[1:]:
        common = _common(result, kind)
        if common is None:
            raise InputError(
                f"{verb}: column {name!r} is {result} in one table and {kind} in the other. Convert one of them, as in "
                f"with_columns({name}=trek.col({name!r}).cast('{_example(result)}'))."
            )
        result = common
    return result


def common_schema(schemas: Sequence[pa.Schema], *, verb: str) -> pa.Schema:
    """The columns of all `schemas`, which must have the same names in the same order, in types that hold all values."""
    names = schemas[0].names
    for schema in schemas[1:]:
        if schema.names != names:
            raise InputError(f"{verb} needs equal columns, got {', '.join(names)} and {', '.join(schema.names)}.")
    return pa.schema([(n, common_type([schema.field(n).type for schema in schemas], name=n, verb=verb)) for n in names])


def is_text(kind: pa.DataType) -> bool:
    """Whether values are texts."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_bytes(kind: pa.DataType) -> bool:
    """Whether values are bytes of any length."""
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind))


def _no_values(kind: pa.DataType) -> pa.Array:
    """Not made from an empty list: for a list, Arrow imports pandas, which takes more time and memory than this."""
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, pa.nulls(0, kind.storage_type))
    return pa.nulls(0, kind)


def _cast(column: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    return (pc.run_end_decode(column) if pa.types.is_run_end_encoded(column.type) else column).cast(kind)


def _kept_field(field: pa.Field) -> pa.Field:
    return field.with_type(kept_type(field.type))


def _common(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    if left == right or pa.types.is_null(right):
        return left
    if pa.types.is_null(left):
        return right
    if pa.types.is_dictionary(left) or pa.types.is_dictionary(right):
        values = [kind.value_type if pa.types.is_dictionary(kind) else kind for kind in (left, right)]
        return _common(*values)
    for belongs in (is_text, is_bytes):
        if belongs(left) and belongs(right):
            return left
    if pa.types.is_integer(left) and pa.types.is_integer(right):
        return _common_integer(left, right)
    if pa.types.is_floating(left) and pa.types.is_floating(right):
        return max(left, right, key=lambda kind: kind.bit_width)
    return None


def _common_integer(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    if pa.types.is_signed_integer(left) == pa.types.is_signed_integer(right):
        return max(left, right, key=lambda kind: kind.bit_width)
    signed, unsigned = (left, right) if pa.types.is_signed_integer(left) else (right, left)
    width = max(signed.bit_width, 2 * unsigned.bit_width)
    return {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}.get(width)


def _example(kind: pa.DataType) -> str:
    return "string" if is_text(kind) or pa.types.is_dictionary(kind) else str(kind)
