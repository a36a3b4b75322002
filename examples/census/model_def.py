"""Predicts who earns more than 50,000 dollars: a wide and deep model on census data, as a Trial.

The preparation is fitted on the training split, applied in the Table, and saved inside the model's checkpoint. The rows
of embeddings live in tables: in the process itself, or on parameter servers (ps.yaml).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import trek
from trek.data.preparation import Bucketise, ConcatenateWithOffsets, Hash, Lookup, Normalise, Preparation

NUMBERS = ["age", "education_num", "capital_gain", "capital_loss", "hours_per_week"]
CATEGORIES = ["workclass", "education", "marital_status", "occupation", "relationship", "race", "sex"]


def make_preparation() -> Preparation:
    """Numbers normalised, categories looked up, ages in buckets, the many countries hashed."""
    features: dict[str, Any] = {"numbers": (Normalise(), NUMBERS)}
    features |= {name: (Lookup(), name) for name in CATEGORIES}
    features["age_bucket"] = (Bucketise([18, 25, 30, 35, 40, 45, 50, 55, 60, 65]), "age")
    features["native_country"] = (Hash(64), "native_country")
    return Preparation({**features, "label": "label"})


class WideAndDeep(nn.Module):
    """Layers over embeddings and numbers (deep), plus one weight for each id (wide)."""

    def __init__(self, prepare: Preparation, *, dim: int) -> None:
        super().__init__()
        self.prepare = prepare
        self.together = ConcatenateWithOffsets([prepare.num_ids(name) for name in id_features(prepare)])
        self.embedding = trek.nn.Embedding("embedding", dim, initial="normal")
        self.wide = trek.nn.Embedding("wide", 1, initial="zeros")
        width = len(self.together.sizes) * dim + len(NUMBERS)
        self.deep = nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, numbers: torch.Tensor, *ids: torch.Tensor) -> torch.Tensor:
        """The logit of a high income."""
        together = self.together(ids)
        deep = self.deep(torch.cat([self.embedding(together).flatten(1), numbers], dim=1))
        return (deep + self.wide(together).sum(1)).squeeze(1)


def id_features(prepare: Preparation) -> list[str]:
    """The features that are ids, in the order the model takes them."""
    return [name for name in prepare.columns if name not in ("numbers", "label")]


class CensusTrial(trek.Trial):
    """Predicts the probability of a high income from prepared rows."""

    def __init__(self, context: trek.TrialContext) -> None:
        super().__init__(context)
        self.prepare = make_preparation().fit(trek.data.open("adult", split="train"))

    def build_model(self) -> nn.Module:
        """Wide and deep."""
        return WideAndDeep(self.prepare, dim=self.context.get_hparam("embedding_dim"))

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Adam."""
        return torch.optim.Adam(model.parameters(), lr=self.context.get_hparam("learning_rate"))

    def build_training_data_loader(self) -> trek.DataLoader:
        """Shuffled."""
        return trek.DataLoader(self._table("train"), self.context.get_per_slot_batch_size(), shuffle=True)

    def build_validation_data_loader(self) -> trek.DataLoader:
        """In order."""
        return trek.DataLoader(self._table("test"), 1024)

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

    def _table(self, split: str) -> trek.data.Table:
        return trek.data.open("adult", split=split).map(self.prepare)
