"""Nested state as JSON plus tensors, which checkpoints use instead of pickle.

Supports dicts (with any plain keys), lists, tuples, sets, tensors, NumPy arrays and scalars, bytes and plain values,
and restores them unchanged. Other types are rejected, so that loading a checkpoint never runs code.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from trek.errors import InputError

_MARKS = ("$tensor", "$array", "$tuple", "$set", "$bytes", "$dict")


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
    if mark == "$array":
        return tensors[content].numpy()
    if mark == "$tuple":
        return tuple(decode(item, tensors) for item in content)
    if mark == "$set":
        return {decode(item, tensors) for item in content}
    if mark == "$bytes":
        return base64.b64decode(content)
    return {decode(key, tensors): decode(item, tensors) for key, item in content}


def _encode(value: Any, tensors: dict[str, torch.Tensor], *, path: str) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, torch.Tensor):
        return {"$tensor": _name(value, tensors)}
    if isinstance(value, np.ndarray):
        return {"$array": _name(torch.from_numpy(np.array(value)), tensors)}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, bytes):
        return {"$bytes": base64.b64encode(value).decode()}
    if isinstance(value, Mapping):
        return _encode_mapping(value, tensors, path=path)
    if isinstance(value, list):
        return [_encode(item, tensors, path=f"{path}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, tuple):
        return {"$tuple": [_encode(item, tensors, path=f"{path}[{i}]") for i, item in enumerate(value)]}
    if isinstance(value, set | frozenset):
        return {"$set": [_encode(item, tensors, path=path) for item in sorted(value, key=repr)]}
    raise InputError(
        f"state{path} is a {type(value).__name__}, which a checkpoint cannot hold without pickle. "
        "Return only numbers, strings, tensors, lists and dicts from the state_dict."
    )


def _encode_mapping(value: Mapping[Any, Any], tensors: dict[str, torch.Tensor], *, path: str) -> Any:
    if all(isinstance(key, str) and not key.startswith("$") for key in value):
        return {key: _encode(item, tensors, path=f"{path}[{key!r}]") for key, item in value.items()}
    pairs = [
        [_encode(key, tensors, path=path), _encode(item, tensors, path=f"{path}[{key!r}]")]
        for key, item in value.items()
    ]
    return {"$dict": pairs}


def _name(tensor: torch.Tensor, tensors: dict[str, torch.Tensor]) -> str:
    name = f"t{len(tensors)}"
    tensors[name] = tensor
    return name
