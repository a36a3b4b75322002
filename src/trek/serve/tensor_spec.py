"""TensorSpec: the name, dtype and shape of an input or output, and the check that values fit it.

Shapes leave out the batch dimension; -1 is a size that may vary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trek.errors import InputError

TEXT = "text"
"""The dtype of text, held in arrays of Python strings."""
_TEXTS, _BOOLEANS = {str, np.str_}, {bool, np.bool_}
_NUMBERS = (int, float, bool, np.integer, np.floating, np.bool_)
_WORDS = {
    bool: "true or false",
    dict: "objects",
    float: "numbers",
    int: "numbers",
    str: "text",
    bytes: "bytes",
    type(None): "null",
}
"""What JSON calls values."""
_EXACT = 1 << 53
"""Up to here, a float of 64 bits holds every whole number."""


@dataclass(frozen=True)
class TensorSpec:
    """One input or output of a model."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    def fit(self, values: Any) -> np.ndarray:
        """`values`, rows first, as an array of this dtype and shape; InputError if they are something else."""
        array = cast(to_array(values, name=self.name), name=self.name, dtype=self.dtype)
        shape = array.shape[1:]
        is_same = len(shape) == len(self.shape) and all(b in (-1, a) for a, b in zip(shape, self.shape, strict=True))
        if array.ndim == 0 or not is_same:
            raise InputError(
                f"input {self.name!r} must have the shape {_shown((-1, *self.shape))}, got {list(array.shape)}."
            )
        return array


def to_array(values: Any, *, name: str) -> np.ndarray:
    """An array of nested lists of numbers, of booleans, or of strings as objects; InputError for anything else."""
    if isinstance(values, np.ndarray) and values.dtype.kind not in "UOS":
        return values
    # Of objects first: NumPy makes texts of numbers among texts, and each text as wide as the longest one.
    array = np.asarray(values, dtype=object)
    kinds = {type(one) for one in array.reshape(-1).tolist()}
    if kinds <= _TEXTS and (kinds or isinstance(values, np.ndarray)):
        return array
    if not all(issubclass(kind, _NUMBERS) for kind in kinds) or (kinds & _BOOLEANS and kinds - _BOOLEANS):
        if kinds & {list, np.ndarray}:
            raise InputError(f"input {name!r} must be a rectangular list of numbers or of text, got lists that differ.")
        shown = " and ".join(sorted({_WORDS.get(kind, kind.__name__) for kind in kinds}))
        raise InputError(f"input {name!r} must be numbers or text, got {shown}.")
    dtype = _dtype_of(array, kinds)
    if dtype is None:
        raise InputError(f"input {name!r} has numbers that no type of 64 bits holds exactly.")
    return array.astype(dtype)


def _dtype_of(array: np.ndarray, kinds: set[type]) -> type | None:
    """The dtype that holds all numbers of an array of objects as they are; None if there is none."""
    if not any(issubclass(kind, int | np.integer | np.bool_) for kind in kinds):
        return np.float64
    if kinds <= _BOOLEANS:
        return bool
    whole = [int(one) for one in array.reshape(-1).tolist() if isinstance(one, int | np.integer)]
    low, high = min(whole), max(whole)
    if len(whole) < array.size:
        return np.float64 if all(abs(one) <= _EXACT or one == _rounded(one) for one in whole) else None
    if low >= -(1 << 63) and high < 1 << 63:
        return np.int64
    return np.uint64 if low >= 0 and high < 1 << 64 else None


def _rounded(whole: int) -> float:
    try:
        return float(whole)
    except OverflowError:
        return np.inf


def cast(array: np.ndarray, *, name: str, dtype: str) -> np.ndarray:
    """`array` with another dtype; InputError where a value would become another one, other than by rounding floats."""
    is_text = array.dtype == object
    if is_text or dtype == TEXT:
        if is_text != (dtype == TEXT):
            raise InputError(f"input {name!r} must be {dtype}, got {'text' if is_text else array.dtype}.")
        return array
    wanted = np.dtype(dtype)
    if array.dtype == wanted:
        return array
    is_number = array.dtype.kind in ("biuf" if wanted.kind == "b" else "iuf")
    with np.errstate(all="ignore"):
        found = array.astype(wanted) if is_number else array
    if not is_number or not _is_same(found, array):
        raise InputError(f"input {name!r} must be {dtype}, got {array.dtype} values that do not fit.")
    return found


def _is_same(found: np.ndarray, given: np.ndarray) -> bool:
    """Whole numbers must come out as they went in, as 0.5 or 300 do not of uint8; floats must not become infinite."""
    if found.dtype.kind in "biu":
        return np.array_equal(found, given)
    return bool(np.isfinite(found).all()) or np.array_equal(np.isfinite(found), np.isfinite(given))


def check_names(inputs: Mapping[str, Any], specs: Sequence[TensorSpec]) -> None:
    """InputError unless `inputs` are exactly those of `specs`."""
    known = [spec.name for spec in specs]
    missing = next((name for name in known if name not in inputs), None)
    unknown = next((name for name in inputs if name not in known), None)
    if missing is not None or unknown is not None:
        what = f"input {missing!r} is missing" if missing is not None else f"input {unknown!r} is unknown"
        raise InputError(f"{what}. The model takes: {', '.join(known)}.")


def _shown(shape: Sequence[int]) -> str:
    return f"[{', '.join('any' if size == -1 else str(size) for size in shape)}]"
