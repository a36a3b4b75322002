"""Between NumPy arrays of requests and tensors of models. Loads torch only where there are tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from trek.errors import InputError
from trek.serve.handlers.base import Arrays
from trek.serve.tensor_spec import TEXT, TensorSpec

if TYPE_CHECKING:
    import torch

_WITHOUT_NUMPY = {"bfloat16": "float32"}
"""Of torch's dtypes, those that NumPy lacks, and what they travel as."""


def numpy_name(dtype: str) -> str:
    """The dtype that values of torch's `dtype` have in requests."""
    return _WITHOUT_NUMPY.get(dtype, dtype)


def to_tensor(array: np.ndarray, *, dtype: str, device: torch.device) -> Any:
    """The tensor of `array`; a list of strings for text."""
    import torch

    if array.dtype == object:
        return [str(one) for one in array.tolist()]
    if not array.flags.writeable or not array.flags.c_contiguous:
        array = array.copy()
    tensor = torch.from_numpy(array)
    wanted: torch.dtype = getattr(torch, dtype) if dtype else tensor.dtype
    return tensor.to(device=device, dtype=wanted)


def to_arrays(answer: Any) -> Arrays:
    """What a model returned, by name: a tensor is `output`, those of a tuple `output_0`, `output_1`, …."""
    if isinstance(answer, tuple) and hasattr(answer, "_asdict"):
        answer = answer._asdict()
    if isinstance(answer, list | tuple) and any(_is_tensor(one) for one in answer):
        answer = {f"output_{index}": one for index, one in enumerate(answer)}
    if not isinstance(answer, Mapping):
        answer = {"output": answer}
    found = {str(name): _to_array(value) for name, value in answer.items() if value is not None}
    if not found:
        raise InputError("the model returned nothing. Return a tensor, or a dict of tensors by name.")
    return found


def specs_of(outputs: Mapping[str, np.ndarray]) -> list[TensorSpec]:
    """The specs of arrays that a model returned."""
    return [
        TensorSpec(name, TEXT if array.dtype == object else array.dtype.name, tuple(array.shape[1:]))
        for name, array in outputs.items()
    ]


def _is_tensor(value: Any) -> bool:
    return isinstance(value, np.ndarray) or hasattr(value, "detach")


def _to_array(value: Any) -> np.ndarray:
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = (value.float() if str(value.dtype) == "torch.bfloat16" else value).numpy()
    array: np.ndarray = np.asarray(value)
    return array.astype(object) if array.dtype.kind == "U" else array
