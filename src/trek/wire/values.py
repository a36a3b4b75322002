"""Nested values as JSON plus tensors, which checkpoints and messages between ranks use instead of pickle.

Supports dicts (with any plain keys), lists, tuples, sets, tensors (dense and COO), NumPy arrays and scalars, DataFrames
of pandas, bytes and plain values, and restores them unchanged. Other types are rejected, so that neither loading a
checkpoint nor receiving a value from another rank ever runs code.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch

from trek.errors import InputError
from trek.wire.frames import Part, frame_parts, split, unframed

if TYPE_CHECKING:
    import pandas as pd

_MARKS = ("$tensor", "$sparse", "$array", "$tuple", "$set", "$frozenset", "$bytes", "$complex", "$frame", "$dict")


class NotPlain(InputError):
    """A value is not plain data: what `kind` it is, and the `path` to it."""

    def __init__(self, kind: str, *, path: str) -> None:
        super().__init__(
            f"state{path} is a {kind}, which cannot be saved or sent to other ranks without pickle. "
            "Use only numbers, strings, tensors, arrays, lists and dicts."
        )
        self.kind = kind
        self.path = path


def encode(value: Any) -> tuple[Any, dict[str, torch.Tensor]]:
    """`value` as a JSON-serializable tree, and the tensors that it refers to by name."""
    tensors: dict[str, torch.Tensor] = {}
    return _encode(value, tensors, path=""), tensors


def decode(tree: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    """The value that was passed to `encode`."""
    if isinstance(tree, list):
        return [decode(item, tensors) for item in tree]
    if not isinstance(tree, dict):
        return tree
    mark = next(iter(tree), None)
    if mark not in _MARKS:
        return {key: decode(item, tensors) for key, item in tree.items()}
    content = tree[mark]
    if mark == "$tensor":
        return tensors[content]
    if mark == "$sparse":
        indices, values, shape, is_coalesced = content
        parts = tensors[indices], tensors[values]
        return torch.sparse_coo_tensor(*parts, shape, is_coalesced=is_coalesced, check_invariants=True)
    if mark == "$array":
        return tensors[content].numpy()
    if mark == "$tuple":
        return tuple(decode(item, tensors) for item in content)
    if mark == "$set":
        return {decode(item, tensors) for item in content}
    if mark == "$frozenset":
        return frozenset(decode(item, tensors) for item in content)
    if mark == "$frame":
        return _frame_of(base64.b64decode(content))
    if mark == "$complex":
        return complex(*content)
    if mark == "$bytes":
        return base64.b64decode(content)
    return {decode(key, tensors): decode(item, tensors) for key, item in content}


@dataclass(frozen=True)
class Message:
    """A value as a head of JSON, and its tensors, whose bytes follow it; a sender need not copy them."""

    head: bytes
    tensors: list[torch.Tensor]

    @classmethod
    def of(cls, value: Any) -> Self:
        """From any plain value."""
        tree, tensors = encode(value)
        whole = [resolved(tensor).contiguous() for tensor in tensors.values()]
        kinds = [[str(tensor.dtype).removeprefix("torch."), list(tensor.shape)] for tensor in whole]
        return cls(json.dumps([tree, kinds]).encode(), whole)

    @classmethod
    def empty(cls, head: bytes) -> Self:
        """On the receiving side: tensors as the head says, for `parts` to be written to."""
        _, kinds = json.loads(head)
        return cls(head, [torch.empty(shape, dtype=getattr(torch, name)) for name, shape in kinds])

    @property
    def parts(self) -> list[torch.Tensor]:
        """The bytes of each tensor."""
        return [tensor.reshape(-1).view(torch.uint8) for tensor in self.tensors]

    @property
    def value(self) -> Any:
        """What was passed to `of`."""
        tree, _ = json.loads(self.head)
        return decode(tree, {f"t{index}": tensor for index, tensor in enumerate(self.tensors)})


def to_bytes(value: Any) -> bytes:
    """`value` as one frame."""
    message = Message.of(value)
    body: list[Part] = [part.cpu().numpy().data if part.numel() else b"" for part in message.parts]
    return b"".join(frame_parts(message.head, body))


def from_bytes(frame: bytes) -> Any:
    """The value that was passed to `to_bytes`."""
    head, body = unframed(frame)
    message = Message.empty(head)
    parts = message.parts
    for part, raw in zip(parts, split(body, [part.numel() for part in parts]), strict=True):
        if raw:
            part.copy_(torch.frombuffer(bytearray(raw), dtype=torch.uint8))
    return message.value


def resolved(tensor: torch.Tensor) -> torch.Tensor:
    """`tensor` without gradients, and with its numbers in memory: conjugates and negatives may be lazy."""
    return tensor.detach().resolve_conj().resolve_neg()


def _encode(value: Any, tensors: dict[str, torch.Tensor], *, path: str) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, torch.Tensor) and value.layout is torch.strided:
        return {"$tensor": _name(value, tensors)}
    if isinstance(value, torch.Tensor) and value.layout is torch.sparse_coo:
        names = [_name(part, tensors) for part in (value.detach()._indices(), value.detach()._values())]
        return {"$sparse": [*names, list(value.shape), value.is_coalesced()]}
    if isinstance(value, np.ndarray) and (array := _to_torch(value)) is not None:
        return {"$array": _name(array, tensors)}
    if isinstance(value, np.bool_ | np.number) and not isinstance(number := value.item(), np.generic):
        return _encode(number, tensors, path=path)
    if isinstance(value, complex):
        return {"$complex": [value.real, value.imag]}
    if isinstance(value, bytes):
        return {"$bytes": base64.b64encode(value).decode()}
    if isinstance(value, Mapping):
        return _encode_mapping(value, tensors, path=path)
    if isinstance(value, list):
        return [_encode(item, tensors, path=f"{path}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, tuple):
        return {"$tuple": [_encode(item, tensors, path=f"{path}[{i}]") for i, item in enumerate(value)]}
    if isinstance(value, set | frozenset):
        mark = "$set" if isinstance(value, set) else "$frozenset"  # of the two, only this one may be a key
        return {mark: [_encode(item, tensors, path=path) for item in sorted(value, key=repr)]}
    if (frame := _frame_bytes(value)) is not None:
        return {"$frame": base64.b64encode(frame).decode()}
    kind = f"{value.dtype} array" if isinstance(value, np.ndarray) else type(value).__name__
    raise NotPlain(kind, path=path)


def _encode_mapping(value: Mapping[Any, Any], tensors: dict[str, torch.Tensor], *, path: str) -> Any:
    if all(isinstance(key, str) and not key.startswith("$") for key in value):
        return {key: _encode(item, tensors, path=f"{path}[{key!r}]") for key, item in value.items()}
    pairs = [
        [_encode(key, tensors, path=path), _encode(item, tensors, path=f"{path}[{key!r}]")]
        for key, item in value.items()
    ]
    return {"$dict": pairs}


def _frame_bytes(value: Any) -> bytes | None:
    """A DataFrame as Arrow's stream; None for others, and for one that would come back as another."""
    pandas = sys.modules.get("pandas")
    if pandas is None or not isinstance(value, pandas.DataFrame):
        return None
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    try:
        table = pa.Table.from_pandas(value)
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    except (pa.ArrowException, TypeError, ValueError):
        return None
    content: bytes = sink.getvalue().to_pybytes()
    return content if _frame_of(content).equals(value) else None


def _frame_of(content: bytes) -> pd.DataFrame:
    import pyarrow as pa

    frame: pd.DataFrame = pa.ipc.open_stream(content).read_all().to_pandas()
    return frame


def _to_torch(array: np.ndarray[Any, Any]) -> torch.Tensor | None:
    """A copy of an array as a tensor; None for types that tensors do not have, such as text."""
    try:
        return torch.from_numpy(np.array(array))
    except (TypeError, ValueError):
        return None


def _name(tensor: torch.Tensor, tensors: dict[str, torch.Tensor]) -> str:
    name = f"t{len(tensors)}"
    tensors[name] = tensor
    return name
