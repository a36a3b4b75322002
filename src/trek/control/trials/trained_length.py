"""How far a trial has trained, in the unit of its searcher. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from trek.experiments.config import ExperimentConfig


def trained_length(config: ExperimentConfig, hparams: Mapping[str, Any], *, batches: int, epoch: float) -> float:
    """The length after `batches`, at which training was at `epoch`."""
    unit = config.searcher.length.unit
    epoch_records = config.training.records_per_epoch
    if unit == "epochs" and epoch_records and "global_batch_size" in hparams:
        return batches / math.ceil(epoch_records / int(hparams["global_batch_size"]))
    if unit == "epochs":
        return epoch
    if unit == "records":
        return batches * int(hparams["global_batch_size"])
    return batches
