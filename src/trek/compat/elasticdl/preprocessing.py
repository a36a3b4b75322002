"""`elasticdl_preprocessing.layers`: layers that turn raw values into ids and numbers, over `trek.data.preparation`.

Values are tensors or NumPy arrays (texts); results are tensors of the same shape. Of a sparse tensor, the values that
are there are turned, and it stays sparse. Hashes are Trek's: bins differ from TensorFlow's.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from trek.data.preparation import Bucketise, Hash, Lookup, Values
from trek.data.preparation import ToSparse as _ToSparse
from trek.errors import DataUnavailable, InputError

_INITIALIZERS: dict[str, Callable[[torch.Tensor], Any]] = {
    "uniform": lambda table: nn.init.uniform_(table, -0.05, 0.05),
    "normal": lambda table: nn.init.normal_(table, std=0.05),
    "zeros": nn.init.zeros_,
    "ones": nn.init.ones_,
}


class ElementLayer(nn.Module):
    """Turns each value by itself."""

    @abstractmethod
    def dense(self, values: Any) -> torch.Tensor:
        """The turned values of an array or a dense tensor."""

    def forward(self, values: Any) -> torch.Tensor:
        """The turned values, in the same shape."""
        if isinstance(values, torch.Tensor) and values.is_sparse:
            return _with_values(values, self.dense)
        return self.dense(values)


class Hashing(ElementLayer):
    """Texts or integers to ids in [0, num_bins)."""

    def __init__(self, num_bins: int) -> None:
        super().__init__()
        self.hash = Hash(num_bins)

    def dense(self, values: Values) -> torch.Tensor:
        """Ids, int64."""
        ids: torch.Tensor = self.hash(values)
        return ids


class IndexLookup(ElementLayer):
    """Words to their place in a vocabulary, which may be a file with a word in each line.

    What is not in it gets one of the `num_oov_tokens` ids after the last, by its hash; -1 if there are none.
    """

    def __init__(self, vocabulary: Sequence[str | int] | str | None = None, num_oov_tokens: int = 1) -> None:
        super().__init__()
        if num_oov_tokens < 0:
            raise InputError(f"num_oov_tokens must be at least 0, got {num_oov_tokens!r}.")
        self.lookup = Lookup(_read_words(vocabulary) if isinstance(vocabulary, str) else vocabulary)
        self.num_oov_tokens = num_oov_tokens

    def vocab_size(self) -> int:
        """Words, and ids for everything else."""
        return self.lookup.num_ids - 1 + self.num_oov_tokens

    def dense(self, values: Values) -> torch.Tensor:
        """Ids, int64."""
        ids: torch.Tensor = self.lookup(values) - 1
        if self.num_oov_tokens == 0:
            return ids
        return torch.where(ids < 0, self.lookup.num_ids - 1 + Hash(self.num_oov_tokens)(values), ids)


class Discretization(ElementLayer):
    """Numbers to the bin they fall in, from 0: a bin has its left boundary and not its right one."""

    def __init__(self, bins: Sequence[float]) -> None:
        super().__init__()
        self.buckets = Bucketise(bins)

    def num_bins(self) -> int:
        """Number of bins."""
        return self.buckets.num_ids - 1

    def dense(self, values: Values) -> torch.Tensor:
        """Ids, int64; -1 for missing numbers."""
        ids: torch.Tensor = self.buckets(values) - 1
        return ids


class LogRound(ElementLayer):
    """Numbers to their rounded logarithm if that is in [0, num_bins); others get `default_value`."""

    def __init__(self, num_bins: int, default_value: int = 0, base: float | None = None) -> None:
        super().__init__()
        if num_bins < 1 or (base is not None and base <= 1):
            raise InputError(f"LogRound needs num_bins >= 1 and base > 1, got {num_bins!r} and {base!r}.")
        self.num_bins, self.default_value, self.base = num_bins, default_value, base

    def dense(self, values: Values) -> torch.Tensor:
        """Ids, int64."""
        logs = torch.as_tensor(values).double().log() / math.log(self.base or math.e)
        return _ids(logs, self.num_bins, self.default_value)


class RoundIdentity(ElementLayer):
    """Numbers rounded to ids in [0, num_buckets); others get `default_value`."""

    def __init__(self, num_buckets: int, default_value: int = 0) -> None:
        super().__init__()
        if num_buckets < 1:
            raise InputError(f"num_buckets must be at least 1, got {num_buckets!r}.")
        self.num_buckets, self.default_value = num_buckets, default_value

    def dense(self, values: Values) -> torch.Tensor:
        """Ids, int64."""
        return _ids(torch.as_tensor(values).double(), self.num_buckets, self.default_value)


class Normalizer(ElementLayer):
    """(value - subtractor) / divisor."""

    def __init__(self, subtractor: float, divisor: float) -> None:
        super().__init__()
        if divisor == 0:
            raise InputError("divisor must not be 0.")
        self.subtractor, self.divisor = subtractor, divisor

    def dense(self, values: Values) -> torch.Tensor:
        """Numbers, float32."""
        return ((torch.as_tensor(values).double() - self.subtractor) / self.divisor).float()


class ToNumber(ElementLayer):
    """Texts to numbers; an empty one gives `default_value`."""

    def __init__(self, out_type: torch.dtype, default_value: float) -> None:
        super().__init__()
        if not isinstance(out_type, torch.dtype) or out_type == torch.bool:
            raise InputError(f"out_type must be a torch.dtype of numbers, got {out_type!r}.")
        self.out_type, self.default_value = out_type, default_value

    def dense(self, values: Any) -> torch.Tensor:
        """Numbers of `out_type`."""
        if isinstance(values, torch.Tensor) or np.asarray(values).dtype.kind in "iufb":
            return torch.as_tensor(values).to(self.out_type)
        texts = np.asarray(values, dtype=object)
        given = [self.default_value if text in ("", None, b"") else text for text in texts.reshape(-1)]
        # Whole numbers are not read as floats, which have fewer digits than int64.
        read, wide = (float, torch.float64) if self.out_type.is_floating_point else (int, torch.int64)
        try:
            return torch.tensor([read(one) for one in given], dtype=wide).reshape(texts.shape).to(self.out_type)
        except (ValueError, OverflowError, RuntimeError) as error:
            raise InputError(f"ToNumber expects texts of numbers of {self.out_type}: {error}.") from error


class ToSparse(_ToSparse):
    """Leave out the entries that equal `ignore_value`."""

    def __init__(self, ignore_value: int = -1) -> None:
        super().__init__(ignore_value)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """A sparse tensor of the same shape; one that is sparse already stays as it is."""
        return ids if ids.is_sparse else super().forward(ids)


class SparseEmbedding(nn.Module):
    """Rows of a local table for the ids of a sparse tensor, as ToSparse makes it, combined to one for each sample."""

    def __init__(
        self, input_dim: int, output_dim: int, embeddings_initializer: str = "uniform", combiner: str = "mean"
    ) -> None:
        super().__init__()
        if combiner not in ("sum", "mean", "sqrtn"):
            raise InputError(f"combiner must be 'sum', 'mean' or 'sqrtn', got {combiner!r}.")
        if embeddings_initializer not in _INITIALIZERS:
            known = ", ".join(_INITIALIZERS)
            raise InputError(f"embeddings_initializer must be one of {known}, got {embeddings_initializer!r}.")
        self.combiner = combiner
        self.embedding = nn.EmbeddingBag(input_dim, output_dim, mode="mean" if combiner == "mean" else "sum")
        _INITIALIZERS[embeddings_initializer](self.embedding.weight)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """One row for each row of the sparse tensor; 0 where it has no id."""
        if not ids.is_sparse:
            raise InputError("SparseEmbedding expects a sparse tensor of ids. Put ToSparse before it.")
        ids = ids.coalesce()
        counts = torch.bincount(ids.indices()[0], minlength=ids.shape[0])
        offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)[:-1]])
        rows: torch.Tensor = self.embedding(ids.values(), offsets)
        return rows / counts.clamp(min=1).sqrt()[:, None] if self.combiner == "sqrtn" else rows


class ConcatenateWithOffset(nn.Module):
    """Ids of several features side by side, each with its offset added; features are all dense, or all sparse."""

    def __init__(self, offsets: Sequence[int], axis: int = -1) -> None:
        super().__init__()
        self.offsets, self.axis = list(offsets), axis

    def forward(self, features: Sequence[torch.Tensor]) -> torch.Tensor:
        """One tensor of all ids."""
        if len(features) != len(self.offsets):
            raise InputError(f"expected {len(self.offsets)} features, one for each offset, got {len(features)}.")
        if len({one.is_sparse for one in features}) > 1:
            raise InputError("features must be all dense or all sparse, got both. Put ToSparse before it.")
        moved = [_moved(ids, offset) for ids, offset in zip(features, self.offsets, strict=True)]
        return torch.cat(moved, dim=self.axis)


def _moved(ids: torch.Tensor, offset: int) -> torch.Tensor:
    return _with_values(ids, lambda values: values + offset) if ids.is_sparse else ids + offset


def _with_values(sparse: torch.Tensor, function: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    given = sparse.coalesce()
    values = function(given.values())
    return torch.sparse_coo_tensor(given.indices(), values, given.shape, is_coalesced=True, check_invariants=False)


def _ids(numbers: torch.Tensor, num_ids: int, default_value: int) -> torch.Tensor:
    """Rounded numbers that are ids, and the default value for others, also if they are missing or infinite."""
    rounded = numbers.round()
    is_id = (rounded >= 0) & (rounded < num_ids)
    return torch.where(is_id, rounded, torch.full_like(rounded, default_value)).long()


def _read_words(path: str) -> list[str]:
    try:
        return [line.strip() for line in Path(path).read_text(encoding="utf-8").splitlines()]
    except OSError as error:
        raise DataUnavailable(f"the vocabulary {path} cannot be read: {error.strerror}.") from error
