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


@dataclass(frozen=True)
class TensorSpec:
    """One input or output of a model."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    def fit(self, values: Any) -> np.ndarray:
        """`values`, rows first, as an array of this dtype and shape; InputError if they are something else."""
        array = to_array(values, name=self.name)
        array = array if array.dtype == object else _cast(array, self)
        if array.dtype == object and self.dtype != TEXT:
            raise InputError(f"input {self.name!r} must be {self.dtype}, got text.")
        shape = array.shape[1:]
        is_same = len(shape) == len(self.shape) and all(b in (-1, a) for a, b in zip(shape, self.shape, strict=True))
        if array.ndim == 0 or not is_same:
            raise InputError(
                f"input {self.name!r} must have the shape {_shown((-1, *self.shape))}, got {list(array.shape)}."
            )
        return array


def to_array(values: Any, *, name: str) -> np.ndarray:
    """An array of nested lists of numbers, or of strings as objects; InputError for anything else."""
    try:
        array = np.asarray(values)
    except (ValueError, OverflowError) as error:
        raise InputError(f"input {name!r} must be a rectangular list of numbers or of text: {error}.") from None
    if array.dtype.kind in "UOS":
        if not all(isinstance(one, str | np.str_) for one in array.reshape(-1).tolist()):
            raise InputError(f"input {name!r} must be numbers or text, got values of several types.")
        return array.astype(object)
    return array


def check_names(inputs: Mapping[str, Any], specs: Sequence[TensorSpec]) -> None:
    """InputError unless `inputs` are exactly those of `specs`."""
    known = [spec.name for spec in specs]
    missing = next((name for name in known if name not in inputs), None)
    unknown = next((name for name in inputs if name not in known), None)
    if missing is not None or unknown is not None:
        what = f"input {missing!r} is missing" if missing is not None else f"input {unknown!r} is unknown"
        raise InputError(f"{what}. The model takes: {', '.join(known)}.")


def _cast(array: np.ndarray, spec: TensorSpec) -> np.ndarray:
    if spec.dtype == TEXT:
        raise InputError(f"input {spec.name!r} must be text, got {array.dtype}.")
    wanted = np.dtype(spec.dtype)
    if array.dtype == wanted:
        return array
    is_number = array.dtype.kind in "biuf"
    with np.errstate(all="ignore"):
        cast = array.astype(wanted) if is_number else array
    # Whole numbers must come out as they went in: 0.5 or 300 are not values of uint8.
    if not is_number or (wanted.kind in "biu" and not np.array_equal(cast, array)):
        raise InputError(f"input {spec.name!r} must be {spec.dtype}, got {array.dtype} values that do not fit.")
    return cast


def _shown(shape: Sequence[int]) -> str:
    return f"[{', '.join('any' if size == -1 else str(size) for size in shape)}]"
