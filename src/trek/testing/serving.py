"""Small models to serve, for tests of serving: a trained checkpoint and its code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import trek
from trek.serve.model_source import ModelSource
from trek.testing.trials import PointsTrial

CODE = Path(trek.__file__).resolve().parent.parent
"""The folder that `trek.testing` is imported from."""


def train_points(folder: Path, *, trial: type[PointsTrial] = PointsTrial) -> Path:
    """The folder of a checkpoint of `trial` after a hundred batches."""
    from trek.train.fit import fit
    from trek.train.length import batches

    result = fit(
        trial, hparams={"global_batch_size": 32}, max_length=batches(100), checkpoint_dir=folder, show_progress=False
    )
    assert result.checkpoint is not None
    return Path(result.checkpoint.path)


def source_of(place: Path | str) -> ModelSource:
    """The model at `place`, with the code of these tests."""
    return ModelSource.parse(str(place), code=CODE)


class ScoringTrial(PointsTrial):
    """Says itself what it answers, with hooks."""

    def predict_batch(self, batch: Any, model: nn.Module) -> dict[str, torch.Tensor]:
        """The share of each class."""
        return {"scores": model(batch[0]).softmax(1)}

    def preprocess(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Six numbers in a text."""
        return {"input_0": np.asarray([[float(n) for n in one.split()] for one in inputs["text"]], dtype="float32")}

    def postprocess(self, outputs: dict[str, np.ndarray]) -> dict[str, Any]:
        """The name of the class."""
        return {"name": [["minus", "plus"][index] for index in outputs["scores"].argmax(1)]}


def make_layer() -> nn.Module:
    """A module, made by a function without parameters."""
    layer = nn.Linear(2, 1)
    nn.init.ones_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


class Doubling(nn.Module):
    """A module that is made without arguments."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Twice the input."""
        return 2 * x
