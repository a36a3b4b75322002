"""`pq.metrics`: the table of epochs with its losses."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd
import torch


class SmoothenLoss:
    """An exponential mean of numbers that is not drawn towards zero at the beginning."""

    def __init__(self, beta: float) -> None:
        self.beta = beta
        self.n = 0
        self.mov_avg = 0.0
        self.smooth = 0.0

    def add_value(self, val: float) -> None:
        """Take in one number; `smooth` is then the mean."""
        self.n += 1
        self.mov_avg = self.beta * self.mov_avg + (1 - self.beta) * val
        self.smooth = self.mov_avg / (1 - self.beta**self.n)


class LossMetrics:
    """Losses of training and validation, a row for every epoch in `results`.

    Every object has its own, and none counts the losses of another. `log` is given every training loss as well.
    """

    def __init__(self, beta: float = 0.99, *, log: Callable[[Mapping[str, Any]], None] = lambda metrics: None) -> None:
        self.beta = beta
        self._log = log
        self._rows: list[dict[str, Any]] = []
        self._begin_epoch()

    @property
    def results(self) -> pd.DataFrame:
        """One row an epoch: `epoch`, `train_loss`, `valid_loss`, `time`."""
        return pd.DataFrame(self._rows, columns=["epoch", "train_loss", "valid_loss", "time"])

    def add_loss(self, loss: torch.Tensor) -> None:
        """Count the loss of a training batch."""
        self._log({"loss": loss.detach()})
        self.train_loss.add_value(float(loss.detach()))

    def add_vloss(self, vlosses: Sequence[torch.Tensor | float], nums: Sequence[int]) -> None:
        """The losses of the validation batches, and how many samples each had."""
        total = sum(float(loss) * num for loss, num in zip(vlosses, nums, strict=True))
        self.valid_loss = total / max(sum(nums), 1)

    def begin_epoch(self) -> None:
        """Another pass begins. If `write` was not called after the last one, its row is added now."""
        if self.train_loss.n:
            self.write()
        self._begin_epoch()

    def calc_time(self) -> str:
        """The time since the epoch began, `05:03`, or `1:02:03` from one hour on."""
        minutes, seconds = divmod(round(time.monotonic() - self._begun_s), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes:02d}:{seconds:02d}"

    def write(self) -> None:
        """End an epoch: its row is added to `results`."""
        row = {"epoch": len(self._rows), "train_loss": self.train_loss.smooth, "valid_loss": self.valid_loss}
        self._rows.append({**row, "time": self.calc_time()})
        self._begin_epoch()

    def _begin_epoch(self) -> None:
        self.train_loss = SmoothenLoss(self.beta)
        self.valid_loss = 0.0
        self._begun_s = time.monotonic()
