"""Columns of fixed-shape tensors: between NumPy, Arrow, torch, and the narrow form they take on disk.

An array of shape (n, 28, 28) is one Arrow column of n tensors over the very same memory. Copies are made only where the
layout forces one: booleans (Arrow packs bits), columns in several chunks, and columns with missing values.
Knows nothing of tables beyond their columns; see `trek.data.table`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from trek.errors import InputError

if TYPE_CHECKING:
    import torch

_MARK = b"trek.tensor"
_KINDS = "biufMmSU"  # of NumPy's types, those that Arrow has too
_NUMBERS = "biuf"


def to_column(values: Any, *, name: str) -> pa.Array:
    """An Arrow column of `values`: arrays of two and more dimensions become tensors, without a copy if contiguous."""
    if isinstance(values, pa.ChunkedArray):
        return values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()
    if isinstance(values, pa.Array):
        return values
    if _is_torch(values):
        values = _numpy_of(values, name=name)
    if isinstance(values, np.ndarray):
        return _from_numpy(values, name=name)
    if isinstance(values, str | bytes) or not hasattr(values, "__iter__"):
        raise InputError(f"column {name!r} is a single value, {values!r}; a column needs one value for each row.")
    return _from_sequence(list(values), name=name)


def to_numpy(column: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """The column as one array. Missing numbers become NaN (integers turn to float64), missing strings None."""
    array = _one_chunk(column)
    if isinstance(array.type, pa.FixedShapeTensorType):
        return _tensors_to_numpy(array)
    result: np.ndarray = array.to_numpy(zero_copy_only=False)
    return result


def to_torch(column: pa.Array | pa.ChunkedArray, *, name: str) -> torch.Tensor:
    """The column as a tensor over the same memory where it is numeric and in one chunk: treat it as read-only.

    Missing numbers and columns that are not numeric (text, dates) are an error, never a silent NaN.
    """
    import torch
    import torch.utils.dlpack

    array = _one_chunk(column)
    values = _values(array) if isinstance(array.type, pa.FixedShapeTensorType) else array
    _require_complete(array, values, name=name)
    shape = (len(array), *array.type.shape) if isinstance(array.type, pa.FixedShapeTensorType) else (len(array),)
    if pa.types.is_boolean(values.type):
        return torch.tensor(values.to_numpy(zero_copy_only=False)).view(shape)
    if not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)):
        raise InputError(
            f"column {name!r} has type {array.type}, which cannot become a tensor. "
            "Drop it, or convert it to numbers with map()."
        )
    if len(array) == 0:
        return torch.from_numpy(np.empty(shape, dtype=values.type.to_pandas_dtype()))
    tensor: torch.Tensor = torch.utils.dlpack.from_dlpack(values)
    return tensor.view(shape)


def pack(table: pa.Table) -> pa.Table:
    """Tensors as fixed-size binary, the form Parquet reads back with a memory copy instead of a decoding loop."""
    for index, field in enumerate(table.schema):
        if isinstance(field.type, pa.FixedShapeTensorType) and _packs(field.type):
            chunks = [_pack_array(chunk) for chunk in table.column(index).chunks]
            width = _width(field.type)
            mark = {"dtype": str(field.type.value_type), "shape": list(field.type.shape)}
            packed = pa.field(field.name, pa.binary(width), metadata={_MARK: json.dumps(mark).encode()})
            table = table.set_column(index, packed, pa.chunked_array(chunks, type=pa.binary(width)))
    return table


def unpack(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Undo `pack`, without a copy."""
    if not any(_is_packed(field) for field in batch.schema):
        return batch
    columns = [
        _unpack_array(column, field) if _is_packed(field) else column
        for column, field in zip(batch.columns, batch.schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=unpack_schema(batch.schema))


def unpack_schema(schema: pa.Schema) -> pa.Schema:
    """The schema that `unpack` gives."""
    return pa.schema([pa.field(f.name, _tensor_type(f)) if _is_packed(f) else f for f in schema])


def type_name(kind: pa.DataType) -> str:
    """What a person would call the type: `uint8[28, 28]` for a column of such tensors."""
    if isinstance(kind, pa.FixedShapeTensorType):
        return f"{kind.value_type}{list(kind.shape)}"
    return str(kind)


def _is_torch(values: Any) -> bool:
    return type(values).__module__.partition(".")[0] == "torch" and hasattr(values, "detach")


def _numpy_of(tensor: Any, *, name: str) -> np.ndarray:
    try:
        array: np.ndarray = tensor.detach().cpu().numpy()
    except (TypeError, RuntimeError) as error:
        raise InputError(
            f"column {name!r} is a tensor of {tensor.dtype} with {tensor.layout}, which a Table cannot hold. "
            "Convert it first, for example with .float() or .to_dense()."
        ) from error
    return array


def _from_numpy(values: np.ndarray, *, name: str) -> pa.Array:
    if values.ndim == 0:
        raise InputError(f"column {name!r} is a single value, {values!r}; a column needs one value for each row.")
    if values.dtype == object:
        return _from_sequence(values.tolist(), name=name)
    if values.dtype.kind not in _KINDS:
        raise InputError(f"column {name!r} has type {values.dtype}, which is not supported. Split it into numbers.")
    if not values.dtype.isnative:
        values = values.astype(values.dtype.newbyteorder("="))
    if values.ndim == 1:
        return pa.array(np.ascontiguousarray(values))
    if values.dtype.kind not in _NUMBERS:
        raise InputError(
            f"column {name!r} holds {values.dtype} in {values.ndim} dimensions; expected one, or numbers. "
            "Split it into columns, or use lists."
        )
    flat = pa.array(np.ascontiguousarray(values).reshape(-1))
    shape = values.shape[1:]
    return _tensors(flat, shape, num_rows=len(values))


def _from_sequence(values: list[Any], *, name: str) -> pa.Array:
    first = next((value for value in values if value is not None), None)
    if isinstance(first, np.ndarray) or _is_torch(first):
        return _stack(values, name=name)
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InputError(f"column {name!r} holds values of different types: {error}.") from error
    except OverflowError as error:
        unsigned = natural_numbers(values)
        if unsigned is not None:
            return unsigned
        raise InputError(
            f"column {name!r} holds whole numbers that fit neither into int64 nor into uint64. Use a float or a text."
        ) from error


def natural_numbers(values: list[Any]) -> pa.Array | None:
    """Whole numbers from 0 to 2**64 as uint64; None of other values."""
    if any(value is not None and type(value) is not int for value in values):
        return None
    try:
        return pa.array(values, pa.uint64())
    except OverflowError:
        return None


def _stack(values: list[Any], *, name: str) -> pa.Array:
    arrays = [np.asarray(value) for value in values]
    odd = next((row for row, array in enumerate(arrays) if array.shape != arrays[0].shape), None)
    if odd is not None:
        raise InputError(
            f"column {name!r} is ragged: row {odd} has shape {arrays[odd].shape}, row 0 has {arrays[0].shape}. "
            "Pad or crop to one shape."
        )
    return _from_numpy(np.stack(arrays), name=name)


def _tensors(flat: pa.Array, shape: tuple[int, ...], *, num_rows: int) -> pa.Array:
    size = int(np.prod(shape))
    if size == 0:
        raise InputError(f"tensors of shape {shape} are empty; every dimension must have at least one element.")
    kind = pa.fixed_shape_tensor(flat.type, shape)
    storage = pa.FixedSizeListArray.from_arrays(flat, size)
    assert len(storage) == num_rows
    return pa.ExtensionArray.from_storage(kind, storage)


def _one_chunk(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)


def _values(array: pa.Array) -> pa.Array:
    """The numbers of a tensor column, row after row, over the same memory; those of missing rows mean nothing."""
    storage = array.storage
    size = storage.type.list_size
    return storage.values.slice(storage.offset * size, len(array) * size)


def _tensors_to_numpy(array: pa.Array) -> np.ndarray:
    flat = _values(array).to_numpy(zero_copy_only=False)
    result: np.ndarray = flat.reshape(len(array), *array.type.shape)
    if array.null_count:
        result = result.astype(np.result_type(result.dtype, np.float32))
        result[array.is_null().to_numpy(zero_copy_only=False)] = np.nan
    return result


def _require_complete(array: pa.Array, values: pa.Array, *, name: str) -> None:
    if array.null_count or values.null_count:
        missing = np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))
        where = f"rows {missing[0]} to {missing[-1]}" if len(missing) else "some tensors"
        raise InputError(
            f"column {name!r} has {array.null_count or values.null_count} missing values ({where}), which a tensor "
            "cannot hold. Fill them with map(), or filter the rows out."
        )


def _packs(kind: pa.FixedShapeTensorType) -> bool:
    return not pa.types.is_boolean(kind.value_type)


def _width(kind: pa.FixedShapeTensorType) -> int:
    return int(np.prod(kind.shape)) * int(kind.value_type.bit_width) // 8


def _pack_array(array: pa.Array) -> pa.Array:
    if array.null_count:
        raise InputError(
            "a tensor column with missing rows cannot be stored. Fill them with map(), or filter them out."
        )
    width = _width(array.type)
    return pa.Array.from_buffers(
        pa.binary(width), len(array), [None, array.storage.values.buffers()[1]], offset=array.storage.offset
    )


def _is_packed(field: pa.Field) -> bool:
    return field.metadata is not None and _MARK in field.metadata


def _tensor_type(field: pa.Field) -> pa.DataType:
    mark = json.loads(field.metadata[_MARK])
    return pa.fixed_shape_tensor(pa.type_for_alias(mark["dtype"]), mark["shape"])


def _unpack_array(array: pa.Array, field: pa.Field) -> pa.Array:
    kind = _tensor_type(field)
    size = kind.storage_type.list_size
    values = pa.Array.from_buffers(
        kind.value_type, (array.offset + len(array)) * size, [None, array.buffers()[1]]
    ).slice(array.offset * size)
    return pa.ExtensionArray.from_storage(kind, pa.FixedSizeListArray.from_arrays(values, size))
