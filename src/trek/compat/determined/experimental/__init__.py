"""`determined.experimental`: experiments, trials, checkpoints and models of a master, as Python objects."""

from __future__ import annotations

from trek.compat.determined.experimental import client
from trek.compat.determined.experimental.client import (
    Checkpoint,
    Determined,
    Experiment,
    ExperimentState,
    Model,
    ModelVersion,
    Trial,
)

ExperimentReference = Experiment
TrialReference = Trial

__all__ = [
    "Checkpoint",
    "Determined",
    "Experiment",
    "ExperimentReference",
    "ExperimentState",
    "Model",
    "ModelVersion",
    "Trial",
    "TrialReference",
    "client",
]
