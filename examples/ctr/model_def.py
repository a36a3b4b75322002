"""Predicts clicks on advertisements: a factorisation machine with dense layers (DeepFM), as a Trial.

Twenty-six hashed categories share one embedding; counts are log-transformed and normalised. The rows of the embedding
live in a table: in the process itself, or on parameter servers (ps.yaml).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import trek
from trek.data.preparation import ConcatenateWithOffsets, Hash, Normalise, Preparation

NUMBERS = [f"I{i}" for i in range(1, 14)]
CATEGORIES = [f"C{i}" for i in range(1, 27)]


def log_counts(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The logarithm of the counts, which span many orders of magnitude; missing values stay missing."""
    numbers = {name: np.log1p(np.maximum(batch[name].astype(np.float32), 0)) for name in NUMBERS}
    return {**batch, **numbers}


def make_preparation(num_bins: int) -> Preparation:
    """Numbers normalised, every category hashed."""
    hashed = {name: (Hash(num_bins), name) for name in CATEGORIES}
    return Preparation({"numbers": (Normalise(), NUMBERS), **hashed, "label": "label"})


class DeepFM(nn.Module):
    """Linear weights, pairwise products and dense layers over the same embeddings."""

    def __init__(self, prepare: Preparation, *, dim: int) -> None:
        super().__init__()
        self.prepare = prepare
        self.together = ConcatenateWithOffsets([prepare.num_ids(name) for name in CATEGORIES])
        self.embedding = trek.nn.Embedding("embedding", dim, initial="normal")
        self.weight = trek.nn.Embedding("weight", 1, initial="zeros")
        width = len(CATEGORIES) * dim + len(NUMBERS)
        self.deep = nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 1))

    def forward(self, numbers: torch.Tensor, *ids: torch.Tensor) -> torch.Tensor:
        """The logit of a click."""
        together = self.together(ids)
        vectors = self.embedding(together)
        pairs = (vectors.sum(1).square() - vectors.square().sum(1)).sum(1, keepdim=True) / 2
        deep = self.deep(torch.cat([vectors.flatten(1), numbers], dim=1))
        return (self.weight(together).sum(1) + pairs + deep).squeeze(1)


class ClickTrial(trek.Trial):
    """Predicts the probability of a click from prepared rows."""

    def __init__(self, context: trek.TrialContext) -> None:
        super().__init__(context)
        self.prepare = make_preparation(context.get_hparam("num_bins")).fit(self._raw("train"))

    def build_model(self) -> nn.Module:
        """DeepFM."""
        return DeepFM(self.prepare, dim=self.context.get_hparam("embedding_dim"))

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Adam with weight decay, because the sample is small and there are many ids."""
        return torch.optim.AdamW(model.parameters(), lr=self.context.get_hparam("learning_rate"), weight_decay=0.1)

    def build_training_data_loader(self) -> trek.DataLoader:
        """Shuffled."""
        table = self._raw("train").map(self.prepare)
        return trek.DataLoader(table, self.context.get_per_slot_batch_size(), shuffle=True)

    def build_validation_data_loader(self) -> trek.DataLoader:
        """The union of the two small splits."""
        return trek.DataLoader(self._raw("dev").union(self._raw("test")).map(self.prepare), 512)

    def train_batch(self, batch: Any, model: nn.Module) -> torch.Tensor:
        """The loss."""
        *features, label = batch
        return F.binary_cross_entropy_with_logits(model(*features), label.float())

    def evaluate_batch(self, batch: Any, model: nn.Module) -> dict[str, Any]:
        """Loss and accuracy."""
        *features, label = batch
        logits = model(*features)
        return {
            "validation_loss": F.binary_cross_entropy_with_logits(logits, label.float()),
            "validation_accuracy": ((logits > 0) == label).float().mean(),
        }

    def _raw(self, split: str) -> trek.data.Table:
        return trek.data.open("criteo", split=split).map(log_counts)
