"""A job whose time is known: every row takes a fixed time of one slot, which is slept, so that cores do not matter."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import nn

import trek


class FixedWork(trek.Trial):
    """Trains a linear model; a batch takes `row_s` seconds for each row of this worker's share."""

    def __init__(self, context: trek.TrialContext) -> None:
        self.context = context

    def build_model(self) -> nn.Module:
        return nn.Linear(4, 1)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=0.01)

    def build_training_data_loader(self) -> Any:
        return trek.DataLoader(self._data(), batch_size=self.context.get_per_slot_batch_size())

    def build_validation_data_loader(self) -> Any:
        return trek.DataLoader(self._data(), batch_size=64)

    def train_batch(self, batch: Any, model: nn.Module, epoch_idx: int, batch_idx: int) -> Any:
        x, y = batch
        time.sleep(len(x) * self.context.get_hparam("row_s"))
        return {"loss": nn.functional.mse_loss(model(x), y)}

    def evaluate_batch(self, batch: Any, model: nn.Module) -> Any:
        x, y = batch
        return {"error": nn.functional.mse_loss(model(x), y)}

    def _data(self) -> Any:
        x = torch.randn(2400, 4, generator=torch.Generator().manual_seed(0))
        return torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))
