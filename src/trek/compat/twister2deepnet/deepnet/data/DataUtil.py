"""`twister2deepnet.deepnet.data.DataUtil`: arrays in mini-batches."""

from __future__ import annotations

import numpy as np
import torch

from trek.errors import InputError


class DataUtil:
    """Functions of arrays."""

    @staticmethod
    def generate_minibatches(data: np.ndarray, minibatch_size: int = 1) -> torch.Tensor:
        """All rows once, in order: a tensor (batches, rows, values).

        Batches are equally large, so they have the largest size up to `minibatch_size` that divides the rows.
        """
        rows = len(data)
        if rows == 0 or minibatch_size < 1:
            raise InputError(f"mini-batches need rows and a size of at least 1, got {rows} and {minibatch_size!r}.")
        size = next(size for size in range(min(minibatch_size, rows), 0, -1) if rows % size == 0)
        kind = np.float32 if data.dtype.kind == "f" else data.dtype  # whole numbers may be targets
        values = np.array(data, dtype=kind).reshape(rows // size, size, -1)
        return torch.from_numpy(values)
