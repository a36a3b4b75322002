"""Keys: hashing the columns that say which rows belong together, the same in every process and for every batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trek.data.plans.capabilities import require_key

_NULL = np.uint64(0x9E3779B97F4A7C15)


def partition_of_rows(batch: pa.RecordBatch, keys: Sequence[str], *, num_partitions: int) -> np.ndarray:
    """For each row the partition its key belongs to; equal keys give equal partitions, whatever their integer width."""
    combined = np.zeros(batch.num_rows, np.uint64)
    for key in keys:
        with np.errstate(over="ignore"):
            combined = _mix(combined * np.uint64(31) + hash_column(batch.column(key)))
    return (combined % np.uint64(num_partitions)).astype(np.int64)


def require_keys(schema: pa.Schema, keys: Sequence[str]) -> None:
    """Refuse columns that cannot be compared."""
    for key in keys:
        require_key(key, schema.field(key).type)


def hash_column(column: pa.Array) -> np.ndarray:
    """A 64-bit hash of every value; integers of any width hash alike, missing values all alike."""
    kind = column.type
    if pa.types.is_null(kind):
        return np.full(len(column), _NULL)
    if pa.types.is_floating(kind):
        values = pc.fill_null(column.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False) + 0.0  # -0.0 is 0.0
        values[np.isnan(values)] = np.nan
        hashes = _mix(values.view(np.uint64))
    elif pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_temporal(kind):
        hashes = _mix(_as_integers(column).view(np.uint64))
    else:
        hashes = _hash_texts(column)
    missing = column.is_null().to_numpy(zero_copy_only=False)
    return np.where(missing, _NULL, hashes)


def _as_integers(column: pa.Array) -> np.ndarray:
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.int32() if column.type.bit_width == 32 else pa.int64())
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    wide = pa.uint64() if column.type == pa.uint64() else pa.int64()
    integers: np.ndarray = pc.fill_null(column.cast(wide), 0).to_numpy(zero_copy_only=False)
    return np.ascontiguousarray(integers)


def _hash_texts(column: pa.Array) -> np.ndarray:
    from pandas.util import hash_array

    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    if not len(encoded.dictionary):
        return np.zeros(len(column), np.uint64)
    of_values = hash_array(encoded.dictionary.to_numpy(zero_copy_only=False).astype(object), categorize=False)
    indices = pc.fill_null(encoded.indices, 0).to_numpy(zero_copy_only=False)
    hashes: np.ndarray = of_values[indices]
    return hashes


def _mix(values: np.ndarray) -> np.ndarray:
    """Spread neighbouring numbers over all bits (the finaliser of SplitMix64)."""
    with np.errstate(over="ignore"):
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed: np.ndarray = values ^ (values >> np.uint64(31))
        return mixed
