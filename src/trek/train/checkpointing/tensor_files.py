"""Files of tensors: safetensors, also for complex types that it does not have.

Such a tensor is written as pairs of real numbers (`torch.view_as_real`), and the file's own metadata gives its type by
name, so that other programs can read the file too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

import torch

from trek.errors import InputError

_AS_PAIRS = {"complex32": torch.complex32, "complex128": torch.complex128}
_SAVED_TYPES = frozenset(
    {
        *(torch.bool, torch.uint8, torch.int8, torch.uint16, torch.int16, torch.uint32, torch.int32, torch.uint64),
        *(torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64),
        *(torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz, torch.float8_e8m0fnu),
        *_AS_PAIRS.values(),
    }
)


def check_tensor(tensor: torch.Tensor, what: str) -> None:
    """Raise `InputError` unless a file can hold the tensor, which the message calls `what`."""
    kind = str(tensor.layout if tensor.layout is not torch.strided else tensor.dtype).removeprefix("torch.")
    if tensor.layout is not torch.strided or tensor.dtype not in _SAVED_TYPES:
        raise InputError(
            f"{what} is a tensor of {kind}, which cannot be saved or sent to other processes. Convert it, or "
            "register it as a buffer with persistent=False, which is not saved."
        )


def save_tensors(tensors: Mapping[str, torch.Tensor], path: Path) -> None:
    """Write a file of tensors. A failed write raises OSError, as for every other file."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    kinds = {name: str(tensor.dtype).removeprefix("torch.") for name, tensor in tensors.items()}
    as_pairs = {name: kind for name, kind in kinds.items() if kind in _AS_PAIRS}
    plain = {name: torch.view_as_real(one) if name in as_pairs else one for name, one in tensors.items()}
    try:
        save_file(plain, path, metadata=as_pairs or None)
    except SafetensorError as error:
        code = re.search(r"os error (\d+)", str(error))
        if code is None:
            raise
        raise OSError(int(code[1]), os.strerror(int(code[1]))) from error


def load_tensors(path: Path) -> dict[str, torch.Tensor]:
    """The tensors in a file that `save_tensors` wrote, on the CPU."""
    from safetensors import safe_open
    from safetensors.torch import load_file

    tensors: dict[str, torch.Tensor] = load_file(path)
    with safe_open(path, framework="pt") as file:
        as_pairs = {name for name, kind in (file.metadata() or {}).items() if kind in _AS_PAIRS}
    return {name: torch.view_as_complex(one) if name in as_pairs else one for name, one in tensors.items()}
