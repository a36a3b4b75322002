"""The signature of a batch: names, dtypes and shapes of its tensors, without the batch dimension, as plain data.

It is recorded with a checkpoint from the first training batch, so that a server knows what the model expects. Holds no
values, and knows nothing of models. What is neither a tensor nor a list of texts is recorded by its type alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

TEXT = "text"
"""The dtype of a list of strings."""


@dataclass(frozen=True)
class Field:
    """One tensor of a batch, or one list of strings."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    """Without the batch dimension."""


def describe_batch(batch: Any, *, names: Sequence[str] = ()) -> dict[str, Any] | None:
    """The signature of `batch` as a tree of plain values; None where there is None.

    Tensors of a tuple are called by `names`, if there is one for each; else `input_0`, `input_1`, ….
    """
    return _describe(batch, "", names=names)


def fields_of(signature: Mapping[str, Any] | None) -> list[Field]:
    """The tensors of a signature, in order."""
    return list(_fields(signature))


def other_parts_of(signature: Mapping[str, Any] | None) -> dict[str, str]:
    """The types of the parts that are neither tensors nor texts, by name."""
    if signature is None:
        return {}
    inner = signature.get("items", ()) or signature.get("keys", {}).values()
    found = {name: kind for one in inner for name, kind in other_parts_of(one).items()}
    return found | ({signature["name"]: signature["type"]} if "type" in signature else {})


def build_batch(signature: Mapping[str, Any] | None, values: Mapping[str, Any]) -> Any:
    """A batch of the form that the signature describes, with `values` by name; None for each that is missing."""
    if signature is None:
        return None
    if "items" in signature:
        items = [build_batch(one, values) for one in signature["items"]]
        return tuple(items) if signature["is_tuple"] else items
    if "keys" in signature:
        return {key: build_batch(one, values) for key, one in signature["keys"].items()}
    return values.get(signature["name"])


def values_of(signature: Mapping[str, Any] | None, batch: Any) -> dict[str, Any]:
    """Undo `build_batch`: the tensors of a batch of this form, by name."""
    if signature is None or batch is None:
        return {}
    if "items" in signature:
        pairs = list(zip(signature["items"], batch, strict=True))
    elif "keys" in signature:
        pairs = [(one, batch[key]) for key, one in signature["keys"].items()]
    else:
        return {signature["name"]: batch}
    return {name: value for one, part in pairs for name, value in values_of(one, part).items()}


def _describe(value: Any, path: str, *, names: Sequence[str] = ()) -> dict[str, Any] | None:
    if isinstance(value, torch.Tensor):
        shape = list(value.shape[1:])
        return {"name": path or "input", "dtype": str(value.dtype).removeprefix("torch."), "shape": shape}
    if isinstance(value, Mapping):
        return {"keys": {str(key): _describe(one, _joined(path, str(key))) for key, one in value.items()}}
    if isinstance(value, list | tuple) and value and all(isinstance(one, str) for one in value):
        return {"name": path or "input", "dtype": TEXT, "shape": []}
    if isinstance(value, list | tuple):
        called = names if len(names) == len(value) else [f"input_{index}" for index in range(len(value))]
        items = [_describe(one, _joined(path, name)) for one, name in zip(value, called, strict=True)]
        return {"items": items, "is_tuple": isinstance(value, tuple)}
    return None if value is None else {"name": path or "input", "type": type(value).__name__}


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _fields(signature: Mapping[str, Any] | None) -> Iterator[Field]:
    if signature is None:
        return
    for one in signature.get("items", ()) or signature.get("keys", {}).values():
        yield from _fields(one)
    if "dtype" in signature:
        yield Field(signature["name"], signature["dtype"], tuple(signature["shape"]))
