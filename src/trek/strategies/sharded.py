"""Tensors that are sharded over ranks (torch's DTensor): gathering them, and taking one's shard of a whole one.

Imports DTensor only when one is made, because that adds half a second to every start.
"""

from __future__ import annotations

from typing import Any

import torch


def is_sharded(tensor: Any) -> bool:
    """Whether this is one rank's shard of a tensor."""
    return hasattr(tensor, "full_tensor")


def gathered(tensor: Any) -> torch.Tensor:
    """The whole tensor; called on all ranks together if it is sharded."""
    whole: torch.Tensor = tensor.full_tensor() if is_sharded(tensor) else tensor
    return whole


def sharded_like(whole: torch.Tensor, like: Any) -> torch.Tensor:
    """This rank's shard of a tensor that every rank holds, placed as `like` is."""
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(whole.to(like.device), like.device_mesh, like.placements, src_data_rank=None)
