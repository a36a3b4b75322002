"""`elasticdl_preprocessing.layers`: layers that turn raw values into ids and numbers, over `trek.data.preparation`.

Values are tensors or NumPy arrays (texts); results are tensors of the same shape. Hashes are Trek's: bins
differ from TensorFlow's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from trek.data.preparation import Bucketise, Hash, Lookup, Values
from trek.data.preparation import ToSparse as _ToSparse
from trek.errors import InputError


class Hashing(Hash):
    """Texts or integers to ids in [0, num_bins)."""


class IndexLookup(nn.Module):
    """Words to their place in a vocabulary; what is not in it gets the id after the last."""

    def __init__(self, vocabulary: Sequence[str | int] | None = None, num_oov_tokens: int = 1) -> None:
        super().__init__()
        if num_oov_tokens != 1:
            raise InputError(f"num_oov_tokens must be 1, got {num_oov_tokens!r}: unknown words share one id.")
        self.lookup = Lookup(vocabulary)

    @property
    def vocab_size(self) -> int:
        """Words, and one for everything else."""
        return self.lookup.num_ids

    def forward(self, values: Values) -> torch.Tensor:
        """Ids, int64."""
        ids = self.lookup(values)
        return torch.where(ids == 0, self.lookup.num_ids - 1, ids - 1)


class Discretization(nn.Module):
    """Numbers to the bin they fall in, from 0: a bin has its left boundary and not its right one."""

    def __init__(self, bins: Sequence[float]) -> None:
        super().__init__()
        self.buckets = Bucketise(bins)

    @property
    def bin_size(self) -> int:
        """Number of bins."""
        return self.buckets.num_ids - 1

    def forward(self, values: Values) -> torch.Tensor:
        """Ids, int64; -1 for missing numbers."""
        ids: torch.Tensor = self.buckets(values) - 1
        return ids


class LogRound(nn.Module):
    """Numbers to their rounded logarithm, at most num_bins - 1; numbers up to 1 give 0."""

    def __init__(self, num_bins: int, base: float = math.e) -> None:
        super().__init__()
        if num_bins < 1 or base <= 1:
            raise InputError(f"LogRound needs num_bins >= 1 and base > 1, got {num_bins!r} and {base!r}.")
        self.num_bins, self.base = num_bins, base

    def forward(self, values: Values) -> torch.Tensor:
        """Ids, int64."""
        logs = torch.as_tensor(values).double().clamp(min=1).log() / math.log(self.base)
        return logs.round().long().clamp(max=self.num_bins - 1)


class RoundIdentity(nn.Module):
    """Numbers rounded to ids in [0, num_buckets); others get `default_value`."""

    def __init__(self, num_buckets: int, default_value: int = 0) -> None:
        super().__init__()
        if num_buckets < 1:
            raise InputError(f"num_buckets must be at least 1, got {num_buckets!r}.")
        self.num_buckets, self.default_value = num_buckets, default_value

    def forward(self, values: Values) -> torch.Tensor:
        """Ids, int64."""
        ids = torch.as_tensor(values).double().round().long()
        return torch.where((ids < 0) | (ids >= self.num_buckets), self.default_value, ids)


class Normalizer(nn.Module):
    """(value - subtractor) / divisor."""

    def __init__(self, subtractor: float, divisor: float) -> None:
        super().__init__()
        if divisor == 0:
            raise InputError("divisor must not be 0.")
        self.subtractor, self.divisor = subtractor, divisor

    def forward(self, values: Values) -> torch.Tensor:
        """Numbers, float32."""
        return ((torch.as_tensor(values).double() - self.subtractor) / self.divisor).float()


class ToNumber(nn.Module):
    """Texts to numbers; an empty one gives `default_value`."""

    def __init__(self, out_type: torch.dtype, default_value: float) -> None:
        super().__init__()
        self.out_type, self.default_value = out_type, default_value

    def forward(self, values: Any) -> torch.Tensor:
        """Numbers of `out_type`."""
        texts = np.asarray(values, dtype=object)
        try:
            numbers = [float(self.default_value if text in ("", None, b"") else text) for text in texts.reshape(-1)]
        except ValueError as error:
            raise InputError(f"ToNumber expects texts of numbers: {error}.") from error
        return torch.tensor(numbers).reshape(texts.shape).to(self.out_type)


class ToSparse(_ToSparse):
    """Leave out the entries that equal `ignore_value`."""

    def __init__(self, ignore_value: int = -1) -> None:
        super().__init__(ignore_value)


class SparseEmbedding(nn.Module):
    """Rows of a local table for the ids of a sparse tensor, as ToSparse makes it, combined to one for each sample."""

    def __init__(self, input_dim: int, output_dim: int, combiner: str = "mean") -> None:
        super().__init__()
        if combiner not in ("sum", "mean"):
            raise InputError(f"combiner must be 'sum' or 'mean', got {combiner!r}.")
        self.embedding = nn.EmbeddingBag(input_dim, output_dim, mode=combiner)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """One row for each row of the sparse tensor; 0 where it has no id."""
        ids = ids.coalesce()
        counts = torch.bincount(ids.indices()[0], minlength=ids.shape[0])
        offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)[:-1]])
        rows: torch.Tensor = self.embedding(ids.values(), offsets)
        return rows


class ConcatenateWithOffset(nn.Module):
    """Ids of several features side by side, each with its offset added."""

    def __init__(self, offsets: Sequence[int], axis: int = -1) -> None:
        super().__init__()
        self.offsets, self.axis = list(offsets), axis

    def forward(self, features: Sequence[torch.Tensor]) -> torch.Tensor:
        """One tensor of all ids."""
        if len(features) != len(self.offsets):
            raise InputError(f"expected {len(self.offsets)} features, one for each offset, got {len(features)}.")
        return torch.cat([ids + offset for ids, offset in zip(features, self.offsets, strict=True)], dim=self.axis)
