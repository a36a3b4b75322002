"""RatingTrial: a small model with two tables of rows and a dense layer, for tests of parameter servers."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from trek.data.loaders import DataLoader
from trek.nn import Embedding, EmbeddingBag
from trek.train.trial import Trial

NUM_ROWS = 64


class Ratings(nn.Module):
    """A row for the user, the mean of the rows of three tags, and a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.user = Embedding("user", dim=4, initial="normal")
        self.tags = EmbeddingBag("tags", dim=4, mode="mean")
        self.dense = nn.Linear(8, 1)

    def forward(self, user: torch.Tensor, tags: torch.Tensor) -> torch.Tensor:
        """The rating."""
        rating: torch.Tensor = self.dense(torch.cat([self.user(user), self.tags(tags)], dim=1))
        return rating.squeeze(1)


def make_ratings() -> torch.utils.data.TensorDataset:
    """Random ratings by 20 users with ids of any size and sign."""
    generator = torch.Generator().manual_seed(1)
    users = torch.randint(-(2**40), 2**40, (20,), generator=generator)
    picked = users[torch.randint(0, 20, (NUM_ROWS,), generator=generator)]
    tags = torch.randint(0, 9, (NUM_ROWS, 3), generator=generator)
    return torch.utils.data.TensorDataset(picked, tags, torch.randn(NUM_ROWS, generator=generator))


class RatingTrial(Trial):
    """Least squares on random ratings."""

    def build_model(self) -> nn.Module:
        """Two tables and a layer."""
        return Ratings()

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """The optimizer that the hyperparameter `optimizer` names."""
        kind = getattr(torch.optim, self.context.get_hparams().get("optimizer", "SGD"))
        made: torch.optim.Optimizer = kind(model.parameters(), lr=0.05)
        return made

    def build_training_data_loader(self) -> DataLoader:
        """Shuffled."""
        return DataLoader(make_ratings(), self.context.get_per_slot_batch_size(), shuffle=True)

    def build_validation_data_loader(self) -> DataLoader:
        """The same rows."""
        return DataLoader(make_ratings(), 16)

    def train_batch(self, batch: Any, model: nn.Module) -> torch.Tensor:
        """The loss."""
        user, tags, rating = batch
        return F.mse_loss(model(user, tags), rating)

    def evaluate_batch(self, batch: Any, model: nn.Module) -> dict[str, Any]:
        """The loss."""
        user, tags, rating = batch
        return {"validation_loss": F.mse_loss(model(user, tags), rating)}
