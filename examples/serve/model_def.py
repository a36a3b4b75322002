"""A small classifier of digits. Nothing in it is about serving: what requests must send is found in its batches."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import trek


class Digits(trek.Trial):
    """Images of 8 by 8 pixels, and which digit each shows."""

    def build_model(self) -> nn.Module:
        """Two layers."""
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Adam."""
        return torch.optim.Adam(model.parameters(), lr=0.01)

    def build_training_data_loader(self) -> trek.DataLoader:
        """Shuffled."""
        return trek.DataLoader(trek.data.open("digits"), 64, shuffle=True)

    def build_validation_data_loader(self) -> trek.DataLoader:
        """The test images."""
        return trek.DataLoader(trek.data.open("digits", split="test"), 120)

    def train_batch(self, batch: Any, model: nn.Module) -> dict[str, torch.Tensor]:
        """Cross entropy."""
        return {"loss": F.cross_entropy(model(batch[0] / 16), batch[1].long())}

    def evaluate_batch(self, batch: Any, model: nn.Module) -> dict[str, torch.Tensor]:
        """Accuracy."""
        return {"accuracy": (model(batch[0] / 16).argmax(1) == batch[1]).float().mean()}
