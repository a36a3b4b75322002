"""A checkpoint as a model of MLflow: what `mlflow.pyfunc.load_model` calls. No pickle is read.

The Trial's class must have been imported where the model is loaded.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from trek.train.checkpointing.checkpoint_folder import open_checkpoint
from trek.train.checkpointing.loading import load_model


class CheckpointModel:
    """The model of a checkpoint, in evaluation mode."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model.eval()

    def predict(self, model_input: Any, params: Any = None) -> np.ndarray[Any, Any]:
        """The model's output for an array of inputs, or for the rows of a DataFrame."""
        array = model_input.to_numpy() if hasattr(model_input, "to_numpy") else np.asarray(model_input)
        inputs = torch.as_tensor(array)
        dtype = next((p.dtype for p in self._model.parameters()), torch.float32)
        with torch.no_grad():
            output = self._model(inputs.to(dtype) if inputs.is_floating_point() else inputs)
        return np.asarray(output.float())


def _load_pyfunc(path: str) -> CheckpointModel:
    """Called by MLflow with the folder of the checkpoint."""
    return CheckpointModel(load_model(open_checkpoint(path)))
