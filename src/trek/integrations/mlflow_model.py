"""A checkpoint as a model of MLflow: what `mlflow.pyfunc.load_model` calls. No pickle is read.

The Trial's class must have been imported where the model is loaded. The answers are those of `trek serve`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from trek.errors import InputError
from trek.serve.handlers.base import Arrays, Handler
from trek.serve.handlers.trial_handler import TrialHandler
from trek.train.checkpointing.checkpoint_folder import open_checkpoint
from trek.train.checkpointing.loading import load_trial


class CheckpointModel:
    """The model of a checkpoint, called as its Trial calls it."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    def predict(self, model_input: Any, params: Any = None) -> np.ndarray[Any, Any] | Arrays:
        """The answer for rows: a dict of arrays or a DataFrame by the names of the inputs, or the only input itself.

        The only output is an array; several are a dict of them.
        """
        handler = self._handler
        outputs = handler.predict(handler.fit(self._by_name(model_input)))
        return outputs if len(outputs) > 1 else next(iter(outputs.values()))

    def _by_name(self, rows: Any) -> dict[str, Any]:
        if isinstance(rows, Mapping):
            return dict(rows)
        specs = self._handler.inputs
        names = list(getattr(rows, "columns", ())) if specs is None else [spec.name for spec in specs]
        if hasattr(rows, "columns") and set(names) <= set(rows.columns):
            return {name: rows[name].tolist() for name in names}
        if specs is None or len(specs) != 1:
            raise InputError(
                f"expected rows by the names of the inputs ({', '.join(names) or 'any'}), got {type(rows).__name__}. "
                "Pass a dict of arrays, or a DataFrame."
            )
        return {names[0]: rows.to_numpy() if hasattr(rows, "to_numpy") else rows}


def _load_pyfunc(path: str) -> CheckpointModel:
    """Called by MLflow with the folder of the checkpoint."""
    checkpoint = open_checkpoint(path)
    return CheckpointModel(TrialHandler(load_trial(checkpoint), checkpoint=checkpoint))
