"""Fixed-shape tensor columns keep values, shapes and, where they can, memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from trek.data import Table, tensors
from trek.errors import InputError

_DTYPES = st.sampled_from([np.uint8, np.int16, np.int64, np.float32, np.float64])


@settings(deadline=None)
@given(hnp.arrays(_DTYPES, hnp.array_shapes(min_dims=1, max_dims=4, max_side=4), elements=st.integers(0, 100)))
def test_arrays_come_back_equal(array: np.ndarray) -> None:
    column = tensors.to_column(array, name="x")
    np.testing.assert_array_equal(tensors.to_numpy(column), array)
    np.testing.assert_array_equal(tensors.to_torch(column, name="x").numpy(), array)


def test_arrow_and_torch_share_the_memory_of_the_array() -> None:
    array = np.arange(60, dtype=np.uint8).reshape(5, 4, 3)
    tensor = tensors.to_torch(tensors.to_column(array, name="x"), name="x")
    assert tensor.data_ptr() == array.ctypes.data


def test_a_slice_shares_memory_and_begins_at_its_row() -> None:
    array = np.arange(60, dtype=np.float32).reshape(5, 4, 3)
    sliced = tensors.to_column(array, name="x").slice(2, 2)
    np.testing.assert_array_equal(tensors.to_numpy(sliced), array[2:4])
    assert tensors.to_torch(sliced, name="x").data_ptr() == array[2:].ctypes.data


def test_booleans_become_a_bool_tensor() -> None:
    column = tensors.to_column(np.array([[True, False], [False, False]]), name="x")
    assert tensors.to_torch(column, name="x").tolist() == [[True, False], [False, False]]


def test_packing_for_disk_and_back_changes_nothing() -> None:
    array = np.arange(48, dtype=np.int16).reshape(4, 3, 4)
    table = pa.table({"x": tensors.to_column(array, name="x"), "y": pa.array([1, 2, 3, 4])}).slice(1, 2)
    packed = tensors.pack(table)
    assert packed.schema.field("x").type == pa.binary(24)
    (batch,) = packed.to_batches()
    unpacked = tensors.unpack(batch)
    np.testing.assert_array_equal(tensors.to_numpy(unpacked.column(0)), array[1:3])
    assert unpacked.schema.equals(table.schema)


def test_missing_numbers_are_refused_by_name_and_row() -> None:
    with pytest.raises(InputError, match=r"'age' has 2 missing values \(rows 1 to 3\)"):
        tensors.to_torch(pa.array([1, None, 3, None]), name="age")


def test_text_is_refused_as_a_tensor() -> None:
    with pytest.raises(InputError, match="'name' has type string"):
        tensors.to_torch(pa.array(["a"]), name="name")


def test_ragged_arrays_are_refused_by_row() -> None:
    with pytest.raises(InputError, match=r"ragged: row 1 has shape \(3,\)"):
        tensors.to_column([np.zeros(2), np.zeros(3)], name="x")


def test_missing_numbers_are_nan_in_numpy() -> None:
    assert np.isnan(tensors.to_numpy(pa.array([1, None]))).tolist() == [False, True]


def test_an_empty_column_keeps_shape_and_type() -> None:
    column = tensors.to_column(np.empty((0, 2, 3), np.float32), name="x")
    tensor = tensors.to_torch(column, name="x")
    assert tensor.shape == (0, 2, 3)
    assert tensor.dtype == torch.float32


def test_numbers_of_the_other_byte_order_are_turned_and_types_without_a_column_refused() -> None:
    assert Table.of({"x": np.arange(4, dtype=">i4")}).to_numpy()["x"].tolist() == [0, 1, 2, 3]
    with pytest.raises(InputError, match="'x' has type complex128, which is not supported"):
        Table.of({"x": np.zeros(2, complex)})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (torch.zeros(2, dtype=torch.bfloat16), r"'x' is a tensor of torch.bfloat16 .* Convert it first"),
        (torch.zeros(2, 2).to_sparse(), r"'x' is a tensor of torch.float32 with torch.sparse_coo"),
        (np.array([["a", "b"]] * 2), r"'x' holds <U1 in 2 dimensions"),
        ([1, 2**64], r"'x' holds whole numbers that fit neither into int64 nor into uint64"),
    ],
    ids=["bfloat16", "sparse", "texts in two dimensions", "too large"],
)
def test_what_a_table_cannot_hold_is_refused_by_column(values: Any, message: str) -> None:
    """Each was a foreign traceback without the column's name."""
    with pytest.raises(InputError, match=message):
        tensors.to_column(values, name="x")


def test_names_of_columns_must_be_texts() -> None:
    """A number as a name was a foreign traceback."""
    with pytest.raises(InputError, match=r"map named, rows 0 to 1 .*the name of a column must be a text, got 1"):
        Table.of({"x": [1, 2]}).map(named).to_arrow()


def named(batch: Any) -> Any:
    return {1: batch["x"]}
