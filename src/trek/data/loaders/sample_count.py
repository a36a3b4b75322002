"""The number of samples in a batch whose structure nobody has described: what a stream yields.

A batch is a structure of fields (a tensor, a pair, a dict, a dataclass), and each field holds all samples along its
first dimension. Lists are ambiguous: `[x, y]` are two fields, `["a", "b"]` are two samples. So each field says which
numbers of samples are possible, the likeliest first, and the number that suits the most fields is taken.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from numbers import Number
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence


def count_samples(data: Any) -> int:
    """The number of samples in the batch `data`; 1 if nothing in it says so."""
    if type(data) in (list, tuple) and data and _are_equal_tensors(data):  # the usual batch
        return int(data[0].shape[0])
    return next(iter(_possible_counts(data, is_field=False)), 1)


def _are_equal_tensors(data: Sequence[Any]) -> bool:
    return all(type(one) is torch.Tensor and one.dim() > 0 and one.shape[0] == data[0].shape[0] for one in data)


def _possible_counts(data: Any, *, is_field: bool) -> list[int]:
    """Numbers of samples that `data` may hold, the likeliest first; none for a scalar."""
    if _is_scalar(data):
        return []
    if isinstance(data, PackedSequence):
        return [int(data.batch_sizes[0])]
    if isinstance(data, torch.Tensor) and data.is_nested:
        return [data.size(0)]
    if (shape := getattr(data, "shape", None)) is not None:
        return [int(shape[0])]
    if isinstance(data, list | tuple):
        return _counts_of_list(data, is_field=is_field)
    if (fields := _fields(data)) is not None:
        return _most_common(fields)
    return [len(data)] if hasattr(data, "__len__") else []


def _counts_of_list(data: Sequence[Any], *, is_field: bool) -> list[int]:
    """Of a list or tuple: of fields, or of samples."""
    if not data:
        return []
    if all(map(_is_scalar, data)):
        return [len(data)]
    if not is_field:
        by_field = _most_common(data)
        return [len(data)] if _are_records(data) else by_field or [len(data)]
    counts = [set(_possible_counts(one, is_field=True)) for one in data if not _is_scalar(one)]
    agreed = [count for count in _most_common(data) if all(count in one for one in counts)]
    are_samples = _are_records(data) or _are_lists_of_scalars(data)
    return [len(data), *agreed] if are_samples else [*agreed, len(data)]


def _most_common(fields: Iterable[Any]) -> list[int]:
    """The numbers that the fields allow, by how many of them do, then by their order."""
    counts = [_possible_counts(field, is_field=True) for field in fields]
    votes = Counter(count for one in counts for count in dict.fromkeys(one))
    first = {count: place for place, count in reversed(list(enumerate(c for one in counts for c in one)))}
    return sorted(votes, key=lambda count: (-votes[count], first[count]))


def _fields(data: Any) -> list[Any] | None:
    """The values of a mapping, a dataclass or a plain object with tensors; None if `data` is none of these."""
    if isinstance(data, Mapping):
        return list(data.values())
    if dataclasses.is_dataclass(data):
        return [getattr(data, field.name) for field in dataclasses.fields(data)]
    if hasattr(data, "__len__"):
        return None
    attributes = list(getattr(data, "__dict__", {}).values())
    return [one for one in attributes if isinstance(one, torch.Tensor | list | tuple)] or None


def _is_scalar(data: Any) -> bool:
    if data is None or isinstance(data, str | bytes | Number):
        return True
    return getattr(data, "shape", None) == ()


def _are_records(data: Sequence[Any]) -> bool:
    """Whether all are samples of one kind, such as pairs of features and a number: a field holds no single number."""
    kinds = {(type(one), tuple(one) if isinstance(one, Mapping) else len(_children(one))) for one in data}
    return len(kinds) == 1 and all(
        not all(map(_is_scalar, children)) and any(map(_is_scalar, children)) for children in map(_children, data)
    )


def _children(one: Any) -> list[Any]:
    return list(one) if isinstance(one, list | tuple) else _fields(one) or []


def _are_lists_of_scalars(data: Sequence[Any]) -> bool:
    """Whether these are rows of numbers, such as the tokens of one text each."""
    return all(isinstance(one, list | tuple) and all(map(_is_scalar, one)) for one in data)
