"""Tensors in messages: attached to a frame without a copy, or inside the message for gRPC."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from trek.errors import InputError
from trek.ps.protocol import messages as pb

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
ALIGNMENT = 8
_MAX_LENGTH = 1 << 40
"""Of a dimension, as in a tensor without elements: larger ones overflow."""
_DTYPES: dict[torch.dtype, tuple[pb.DType.ValueType, np.dtype[Any]]] = {
    torch.float32: (pb.FLOAT32, np.dtype(np.float32)),
    torch.float16: (pb.FLOAT16, np.dtype(np.uint16)),
    torch.bfloat16: (pb.BFLOAT16, np.dtype(np.uint16)),
    torch.int64: (pb.INT64, np.dtype(np.int64)),
    torch.float64: (pb.FLOAT64, np.dtype(np.float64)),
    torch.uint32: (pb.UINT32, np.dtype(np.uint32)),
    torch.int32: (pb.INT32, np.dtype(np.int32)),
    torch.uint8: (pb.UINT8, np.dtype(np.uint8)),
}
_BY_NUMBER = {number: (dtype, stored) for dtype, (number, stored) in _DTYPES.items()}


class Attachments:
    """The tensors of a message that is about to be sent."""

    def __init__(self) -> None:
        self.parts: list[memoryview] = []
        self.num_bytes = 0

    def add(self, tensor: torch.Tensor, *, name: str = "", offset: int = 0, rule: int = 0, slot: str = "") -> pb.Tensor:
        """The description of a tensor on the CPU, which must not change before it is sent."""
        if tensor.dtype not in _DTYPES:
            raise InputError(f"tensor {name!r} has the type {tensor.dtype}, which parameter servers do not take.")
        tensor = tensor.detach().contiguous()
        described = pb.Tensor(
            name=name,
            dtype=_DTYPES[tensor.dtype][0],
            shape=tuple(tensor.shape),
            offset=offset,
            rule=rule,
            slot=slot,
            start=self.num_bytes,
        )
        flat: Any = np.ascontiguousarray(bits_of(tensor)).reshape(-1).view(np.uint8)
        self.parts.append(flat.data)
        self.num_bytes += flat.size
        if padding := -flat.size % ALIGNMENT:
            self.parts.append(memoryview(bytes(padding)))
            self.num_bytes += padding
        return described

    def joined(self) -> Bytes:
        """All bytes in one place, for a transport that cannot send parts."""
        return np.frombuffer(b"".join(self.parts), np.uint8)


def bits_of(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """The numbers of a tensor on the CPU, without a copy; 16-bit floats as their bits."""
    bits = tensor.view(torch.uint16) if tensor.dtype in (torch.float16, torch.bfloat16) else tensor
    array: np.ndarray[Any, Any] = bits.numpy()
    return array


def array_of(described: pb.Tensor, body: Bytes) -> np.ndarray[Any, Any]:
    """The numbers of a tensor that came with `body`, without a copy; 16-bit floats as their bits."""
    if described.dtype not in _BY_NUMBER:
        raise InputError(f"tensor {described.name!r} has an unknown type: {described.dtype}.")
    stored = _BY_NUMBER[described.dtype][1]
    shape = tuple(described.shape)
    count = math.prod(shape)
    if described.content:
        body, start = np.frombuffer(bytearray(described.content), np.uint8), 0
    else:
        start = described.start
    end = start + count * stored.itemsize
    is_too_long = bool(described.content) and end < len(body)
    if min(shape, default=0) < 0 or start < 0 or start % ALIGNMENT or end > len(body) or is_too_long:
        raise InputError(
            f"tensor {described.name!r} of shape {shape} does not lie in the {len(body)} bytes it came with."
        )
    if max(shape, default=0) > _MAX_LENGTH:
        raise InputError(f"tensor {described.name!r} has the shape {shape}, of which numbers are too large.")
    array: np.ndarray[Any, Any] = np.frombuffer(body, stored, count, start) if count else np.empty(0, stored)
    return array if len(shape) == 1 else array.reshape(shape)


def tensor_of(described: pb.Tensor, body: Bytes) -> torch.Tensor:
    """A tensor that came with `body`, without a copy."""
    array = array_of(described, body)
    dtype = _BY_NUMBER[described.dtype][0]
    tensor = torch.from_numpy(array)
    return tensor if tensor.dtype == dtype else tensor.view(dtype)


def move_inside(message: Any, body: Bytes) -> None:
    """Put the attached bytes of every tensor of a message into the message itself."""
    if isinstance(message, pb.Tensor):
        message.content = array_of(message, body).tobytes()
        message.start = 0
        return
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        for one in value if field.is_repeated else [value]:
            move_inside(one, body)
