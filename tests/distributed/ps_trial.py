"""A small model with an embedding table and dense layers, for tests of strategies."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import trek
from trek.nn import Embedding, EmbeddingBag

NUM_ROWS = 64


class Ratings(nn.Module):
    """Two tables and a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.user = Embedding("user", dim=4, initial="normal")
        self.tags = EmbeddingBag("tags", dim=4, mode="mean")
        self.dense = nn.Linear(8, 1)

    def forward(self, user: torch.Tensor, tags: torch.Tensor) -> torch.Tensor:
        return self.dense(torch.cat([self.user(user), self.tags(tags)], dim=1)).squeeze(1)


def make_data() -> torch.utils.data.TensorDataset:
    generator = torch.Generator().manual_seed(1)
    users = torch.randint(-(2**40), 2**40, (20,), generator=generator)
    picked = users[torch.randint(0, 20, (NUM_ROWS,), generator=generator)]
    tags = torch.randint(0, 9, (NUM_ROWS, 3), generator=generator)
    return torch.utils.data.TensorDataset(picked, tags, torch.randn(NUM_ROWS, generator=generator))


class RatingTrial(trek.Trial):
    """Least squares on random ratings."""

    def build_model(self) -> nn.Module:
        return Ratings()

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        kind = getattr(torch.optim, self.context.get_hparams().get("optimizer", "SGD"))
        return kind(model.parameters(), lr=0.05)

    def build_training_data_loader(self) -> trek.DataLoader:
        return trek.DataLoader(make_data(), self.context.get_per_slot_batch_size(), shuffle=True)

    def build_validation_data_loader(self) -> trek.DataLoader:
        return trek.DataLoader(make_data(), 16)

    def train_batch(self, batch: Any, model: nn.Module) -> torch.Tensor:
        user, tags, rating = batch
        return F.mse_loss(model(user, tags), rating)

    def evaluate_batch(self, batch: Any, model: nn.Module) -> dict[str, Any]:
        user, tags, rating = batch
        return {"validation_loss": F.mse_loss(model(user, tags), rating)}
