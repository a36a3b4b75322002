"""Normalise: numbers to mean 0 and deviation 1; missing ones become 0, which is the mean."""

from __future__ import annotations

import numpy as np
import torch

from trek.data.preparation.base import Layer, Values, as_floats, as_numbers, require_fitted


class Normalise(Layer):
    """Subtract the mean and divide by the standard deviation, column by column. A constant column becomes 0."""

    mean: torch.Tensor
    deviation: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.empty(0, dtype=torch.float64))
        self.register_buffer("deviation", torch.empty(0, dtype=torch.float64))
        self.begin()

    def begin(self) -> None:
        """Forget what was observed."""
        self._count: np.ndarray | int = 0
        self._centre: np.ndarray | float = 0.0
        self._squares: np.ndarray | float = 0.0
        self._low: np.ndarray | float = np.nan
        self._high: np.ndarray | float = np.nan

    def observe(self, values: np.ndarray) -> None:
        """Merge mean and squares of these rows (Chan's formula, so that large means lose no digits)."""
        numbers = as_floats(values).reshape(len(values), -1)
        count = (~np.isnan(numbers)).sum(0)
        total = np.maximum(self._count + count, 1)
        centre = np.nansum(numbers, axis=0) / np.maximum(count, 1)
        squares = np.nansum((numbers - centre) ** 2, axis=0)
        shift = centre - self._centre
        self._squares = self._squares + squares + shift**2 * self._count * count / total
        self._centre = self._centre + shift * count / total
        self._count = self._count + count
        self._low = np.fmin(self._low, np.fmin.reduce(numbers, axis=0, initial=np.inf, where=~np.isnan(numbers)))
        self._high = np.fmax(self._high, np.fmax.reduce(numbers, axis=0, initial=-np.inf, where=~np.isnan(numbers)))

    def settle(self) -> None:
        """Keep mean and deviation. What is constant is known by its ends: its mean may be off by a rounding."""
        deviation = np.sqrt(np.asarray(self._squares) / np.maximum(self._count, 1))
        is_constant = np.asarray(self._low == self._high)
        self.mean = torch.as_tensor(np.where(is_constant, self._low, self._centre))
        self.deviation = torch.as_tensor(np.where(is_constant | (deviation == 0), 1.0, deviation))

    def forward(self, values: Values) -> torch.Tensor:
        """Normalised in float64, then float32."""
        require_fitted(self, is_fitted=self.mean.numel() > 0)
        numbers = as_numbers(values)
        wide = numbers.reshape(len(numbers), -1)
        return ((wide - self.mean) / self.deviation).nan_to_num(nan=0.0).float().reshape(numbers.shape)
