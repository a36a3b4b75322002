"""The small convolutional network that the benchmarks serve."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import TensorDataset

import trek


def make_model() -> nn.Module:
    """Two convolutions and two layers, on images of 28 by 28."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 16, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(800, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


class Images(trek.Trial):
    """The network on made-up images."""

    def build_model(self) -> nn.Module:
        """The network."""
        return make_model()

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """SGD."""
        return torch.optim.SGD(model.parameters(), lr=0.0)

    def build_training_data_loader(self) -> trek.DataLoader:
        """Few rows."""
        return trek.DataLoader(TensorDataset(torch.rand(16, 28, 28), torch.zeros(16).long()), 8)

    def build_validation_data_loader(self) -> trek.DataLoader:
        """The same."""
        return self.build_training_data_loader()

    def train_batch(self, batch: Any, model: nn.Module) -> torch.Tensor:
        """Cross entropy."""
        return F.cross_entropy(model(batch[0].unsqueeze(1)), batch[1])

    def evaluate_batch(self, batch: Any, model: nn.Module) -> dict[str, torch.Tensor]:
        """The loss."""
        return {"loss": F.cross_entropy(model(batch[0].unsqueeze(1)), batch[1])}
