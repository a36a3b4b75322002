"""Hash: texts or integers to a fixed number of ids, without learning anything; equal in every process and version."""

from __future__ import annotations

import numpy as np
import torch

from trek.data.preparation.base import Layer, Values
from trek.errors import InputError


class Hash(Layer):
    """Ids in [0, num_bins); different values may share one. Integers hash alike as array and as tensor."""

    def __init__(self, num_bins: int) -> None:
        super().__init__()
        if num_bins < 1:
            raise InputError(f"num_bins must be at least 1, got {num_bins}.")
        self.num_bins = num_bins

    @property
    def num_ids(self) -> int:
        """The bins."""
        return self.num_bins

    def forward(self, values: Values) -> torch.Tensor:
        """Ids, int64."""
        import pyarrow as pa

        from trek.data.plans.keys import hash_column

        array = values.cpu().numpy() if isinstance(values, torch.Tensor) else np.asarray(values)
        flat = array.reshape(-1)
        column = pa.array(flat.tolist() if flat.dtype == object else flat, from_pandas=True)
        ids = (hash_column(column) % np.uint64(self.num_bins)).astype(np.int64).reshape(array.shape)
        device = values.device if isinstance(values, torch.Tensor) else None
        return torch.from_numpy(ids).to(device)
