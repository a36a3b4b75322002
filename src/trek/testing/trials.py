"""Small Trials on made-up points, for tests that need real training and no data set."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import Dataset, TensorDataset

from trek.data.loaders import DataLoader
from trek.train.trial import Trial


def make_points(num_rows: int, *, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    """Points in 6 dimensions, labelled by the sign of their sum; the same points every time."""
    generator = torch.Generator().manual_seed(5)
    points = torch.randn(num_rows, 6, generator=generator, dtype=dtype)
    return points, (points.sum(1) > 0).long()


class NoisyPoints(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """A map-style dataset whose rows get random noise when they are read."""

    def __init__(self, num_rows: int, *, dtype: torch.dtype = torch.float32) -> None:
        self._points, self._labels = make_points(num_rows, dtype=dtype)

    def __len__(self) -> int:
        return len(self._points)

    def __getitem__(self, row: int) -> tuple[torch.Tensor, torch.Tensor]:
        point = self._points[row]
        return point + 0.01 * torch.randn(point.shape, dtype=point.dtype), self._labels[row]


class PointBatches:
    """An iterable of batches in an order drawn from the global generator."""

    def __init__(self, num_rows: int, batch_size: int, *, dtype: torch.dtype = torch.float32) -> None:
        self._points, self._labels = make_points(num_rows, dtype=dtype)
        self._batch_size = batch_size

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for rows in torch.randperm(len(self._points)).split(self._batch_size):  # type: ignore[no-untyped-call]
            yield self._points[rows], self._labels[rows]


class PointsTrial(Trial):
    """A small network on points.

    Hyperparameters, all optional but the batch size: `global_batch_size`, `lr`, `momentum`, `dropout`, `rows`,
    `double`, `data` ("tensors", "mapped", "stream"), `num_workers`, `stop_at` (preempt it in that batch, from 1).
    """

    def _get(self, name: str, default: Any) -> Any:
        return self.context.get_hparams().get(name, default)

    @property
    def _dtype(self) -> torch.dtype:
        return torch.float64 if self._get("double", False) else torch.float32

    def build_model(self) -> nn.Module:
        """Two layers, with dropout between them."""
        layers = [nn.Linear(6, 8), nn.ReLU(), nn.Dropout(self._get("dropout", 0.0)), nn.Linear(8, 2)]
        return nn.Sequential(*layers).to(self._dtype)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """SGD."""
        return torch.optim.SGD(model.parameters(), lr=self._get("lr", 0.1), momentum=self._get("momentum", 0.0))

    def build_training_data_loader(self) -> Any:
        """Shuffled rows of the chosen kind."""
        rows, size = self._get("rows", 100), self.context.get_per_slot_batch_size()
        kind = self._get("data", "tensors")
        if kind == "stream":
            return PointBatches(rows, size, dtype=self._dtype)
        data: Any = NoisyPoints(rows, dtype=self._dtype)
        if kind == "tensors":
            data = TensorDataset(*make_points(rows, dtype=self._dtype))
        return DataLoader(data, size, shuffle=True, num_workers=self._get("num_workers", 0))

    def build_validation_data_loader(self) -> Any:
        """Fifty rows, in batches that do not divide them."""
        return DataLoader(TensorDataset(*make_points(50, dtype=self._dtype)), 16)

    def train_batch(self, batch: Any, model: nn.Module, batch_idx: int) -> dict[str, Any]:
        """Cross entropy."""
        if self._get("stop_at", None) == batch_idx + 1:
            self.context.traveler.stop.request("preempted")
        points, labels = batch
        return {"loss": F.cross_entropy(model(points), labels)}

    def evaluate_batch(self, batch: Any, model: nn.Module) -> dict[str, Any]:
        """Loss and accuracy."""
        points, labels = batch
        out = model(points)
        return {
            "validation_loss": F.cross_entropy(out, labels),
            "accuracy": (out.argmax(1) == labels).to(self._dtype).mean(),
        }
