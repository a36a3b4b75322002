"""`elasticdl.python.common.constants`: what `feed` and `dataset_fn` are called for."""

from __future__ import annotations

from enum import StrEnum


class Mode(StrEnum):
    """What the data is for."""

    TRAINING = "training"
    EVALUATION = "evaluation"
    PREDICTION = "prediction"
