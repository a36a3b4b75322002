"""Bucketise: numbers to the bucket they fall in; boundaries given, or learnt so that buckets are equally full."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from trek.data.preparation.base import Layer, Values, as_floats, as_numbers, require_fitted
from trek.errors import InputError

_SAMPLE = 1_000_000


class Bucketise(Layer):
    """Ids of buckets: 0 for missing, 1 below the first boundary, and one more from each boundary on."""

    boundaries: torch.Tensor

    def __init__(self, boundaries: Sequence[float] | None = None, *, num_buckets: int = 10, seed: int = 0) -> None:
        super().__init__()
        if boundaries is None and num_buckets < 2:
            raise InputError(f"num_buckets must be at least 2, got {num_buckets}.")
        if boundaries is not None and (not boundaries or list(boundaries) != sorted(set(boundaries))):
            raise InputError(f"boundaries must be one or more increasing numbers, got {list(boundaries)}.")
        self.num_buckets = num_buckets
        self.seed = seed
        self._is_given = boundaries is not None
        self.register_buffer("boundaries", torch.tensor(list(boundaries or ()), dtype=torch.float64))
        self.begin()

    @property
    def num_ids(self) -> int:
        """Buckets, and one for missing."""
        return self.boundaries.numel() + 2

    def begin(self) -> None:
        """Forget what was observed."""
        self._random = np.random.default_rng(self.seed)
        self._observed: list[np.ndarray] = []
        self._num_observed = 0

    def observe(self, values: np.ndarray) -> None:
        """Keep a fair sample of the numbers: those with the lowest random keys, sorted out now and then."""
        numbers = as_floats(values).ravel()
        numbers = numbers[~np.isnan(numbers)]
        self._observed.append(np.stack([self._random.random(len(numbers)), numbers]))
        self._num_observed += len(numbers)
        if self._num_observed > 2 * _SAMPLE:
            self._reduce()

    def _reduce(self) -> np.ndarray:
        """The numbers of the sample; all others are forgotten."""
        sample = np.concatenate([np.empty((2, 0)), *self._observed], axis=1)
        if sample.shape[1] > _SAMPLE:
            sample = sample[:, np.argpartition(sample[0], _SAMPLE)[:_SAMPLE]]
        self._observed, self._num_observed = [sample], sample.shape[1]
        numbers: np.ndarray = sample[1]
        return numbers

    def settle(self) -> None:
        """Put boundaries at the quantiles, unless they were given."""
        if self._is_given:
            return
        sample = self._reduce()
        if not len(sample):
            raise InputError("boundaries cannot be learnt: the column has only missing values.")
        quantiles = np.quantile(sample, np.arange(1, self.num_buckets) / self.num_buckets)
        self.boundaries = torch.as_tensor(np.unique(quantiles))
        self.begin()

    def forward(self, values: Values) -> torch.Tensor:
        """Ids, int64."""
        require_fitted(self, is_fitted=self.boundaries.numel() > 0)
        numbers = as_numbers(values).contiguous()
        ids = torch.bucketize(numbers, self.boundaries, right=True) + 1
        return torch.where(numbers.isnan(), 0, ids)
