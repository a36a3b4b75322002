"""ToSparse: ids of fixed width, some of them padding, to the form without the padding."""

from __future__ import annotations

import torch
from torch import nn


class ToSparse(nn.Module):
    """Leave out the entries that equal `ignored`: as a sparse tensor, or as values and offsets for an EmbeddingBag."""

    def __init__(self, ignored: int = -1) -> None:
        super().__init__()
        self.ignored = ignored

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """A sparse COO tensor of the same shape."""
        where = (ids != self.ignored).nonzero().T
        return torch.sparse_coo_tensor(where, ids[tuple(where)], ids.shape, is_coalesced=True, check_invariants=False)

    def to_bags(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Values row after row, and where each row begins: the input of `nn.EmbeddingBag`."""
        kept = ids != self.ignored
        lengths = kept.sum(1)
        return ids[kept], torch.cat([lengths.new_zeros(1), lengths.cumsum(0)[:-1]])
