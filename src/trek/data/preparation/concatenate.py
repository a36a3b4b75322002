"""ConcatenateWithOffsets: ids of several features side by side in one id space, so that one embedding serves all."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from trek.errors import InputError


class ConcatenateWithOffsets(nn.Module):
    """Shift the ids of each feature behind those of the features before it, and put them side by side."""

    offsets: torch.Tensor

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        if not sizes or min(sizes) < 1:
            raise InputError(f"sizes must be one or more numbers of at least 1, got {list(sizes)}.")
        self.sizes = list(sizes)
        offsets = torch.tensor([0, *sizes[:-1]], dtype=torch.int64).cumsum(0)
        self.register_buffer("offsets", offsets, persistent=False)

    @property
    def num_ids(self) -> int:
        """Ids of all features together."""
        return sum(self.sizes)

    def forward(self, features: Sequence[torch.Tensor]) -> torch.Tensor:
        """One tensor (n, total width) of ids in [0, num_ids)."""
        if len(features) != len(self.sizes):
            raise InputError(f"expected {len(self.sizes)} features, one for each size, got {len(features)}.")
        shifted = [
            ids.reshape(len(ids), -1) + offset for ids, offset in zip(features, self.offsets.unbind(), strict=True)
        ]
        return torch.cat(shifted, dim=1)
