"""Small models to serve, for tests of serving: a trained checkpoint, and functions as `module:function`."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
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


def double(x: np.ndarray) -> dict[str, np.ndarray]:
    """Twice the input; fails for negative ones, and ends its process for 666."""
    if (x == 666).any():
        os._exit(9)
    if (x < 0).any():
        raise ValueError("negative")
    return {"y": x * 2}


def slow(x: np.ndarray) -> dict[str, np.ndarray]:
    """The input, after as many seconds."""
    time.sleep(float(x.max()))
    return {"y": x, "together": np.full(len(x), len(x))}


def who(x: np.ndarray) -> dict[str, np.ndarray]:
    """The process that answers."""
    return {"pid": np.full(len(x), os.getpid())}


def count(to: np.ndarray) -> Iterator[dict[str, int]]:
    """A stream of numbers; fails at 13."""
    for number in range(int(to.max())):
        if number == 13:
            raise ValueError("thirteen")
        yield {"number": number}


def make_layer() -> nn.Module:
    """A module, made by a function without parameters."""
    layer = nn.Linear(2, 1)
    nn.init.ones_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def broken() -> Any:
    """Cannot be made."""
    raise RuntimeError("no such weights")
