"""`pq.tensor`: tables and encodings as a `TensorDataset`."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch.utils.data import TensorDataset

from trek.compat.pytorch_quik import io


def make_TensorDataset(  # noqa: N802 - their name
    tens: Any,
    labels: Any,
    ttype: str = "train",
    data_types: Mapping[int, Any] | None = None,
    args: Namespace | None = None,
) -> TensorDataset:
    """The columns of `tens` (a DataFrame, a tensor, or an encoding with `input_ids` and `attention_mask`) and `labels`.

    With a DataFrame, `labels` may be the name of a column. `data_types` are the types of tensors by their index. With
    `args`, the data set is saved where `pq.io.load_torch_object(ttype, args)` finds it.
    """
    inputs, targets = _inputs(tens, labels)
    tensors = [*inputs, torch.tensor(np.array(targets))]
    made = TensorDataset(*(_cast(one, (data_types or {}).get(at)) for at, one in enumerate(tensors)))
    if args is not None:
        torch.save(made, io.id_str(ttype, args))
    return made


def transform_TensorDataset(  # noqa: N802 - their name
    tds: TensorDataset, pop: int | None = None, torch_types: Mapping[int, torch.dtype] | None = None
) -> TensorDataset:
    """Without the tensor at index `pop`, and with tensors of other types by their index after that."""
    kept = [one for at, one in enumerate(tds.tensors) if at != pop]
    return TensorDataset(*(_cast(one, (torch_types or {}).get(at)) for at, one in enumerate(kept)))


def _inputs(tens: Any, labels: Any) -> tuple[list[torch.Tensor], Any]:
    if isinstance(tens, pd.DataFrame):
        targets = tens[labels] if isinstance(labels, str) else labels
        columns = tens.drop(columns=labels) if isinstance(labels, str) else tens
        return [torch.tensor(columns[name].to_numpy(copy=True)) for name in columns], targets
    if isinstance(tens, torch.Tensor):
        return [tens], labels
    return [torch.as_tensor(tens[name]) for name in ("input_ids", "attention_mask")], labels


def _cast(tensor: torch.Tensor, kind: Any) -> torch.Tensor:
    if kind is None:
        return tensor
    return tensor.to(kind if isinstance(kind, torch.dtype) else torch.as_tensor(np.zeros(1, kind)).dtype)
