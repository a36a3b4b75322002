"""The data types of the Open Inference Protocol, and the NumPy dtypes they stand for. Loads no NumPy."""

from __future__ import annotations

from typing import Any

DTYPES = {
    "BOOL": "bool",
    "UINT8": "uint8",
    "UINT16": "uint16",
    "UINT32": "uint32",
    "UINT64": "uint64",
    "INT8": "int8",
    "INT16": "int16",
    "INT32": "int32",
    "INT64": "int64",
    "FP16": "float16",
    "FP32": "float32",
    "FP64": "float64",
    "BYTES": "text",
}
_DATATYPES = {dtype: datatype for datatype, dtype in DTYPES.items()}


def datatype_of(array: Any) -> str:
    """The protocol's name of an array's dtype."""
    return _DATATYPES["text" if array.dtype == object else array.dtype.name]


def datatype_named(dtype: str) -> str:
    """The protocol's name of a dtype."""
    return _DATATYPES[dtype]
