"""Small trials for whole-command tests: a line is fitted, and what else is asked for by hyperparameters happens."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

import trek


class LineTrial(trek.Trial):
    """Fits a line; does `deeds: {batch_<number>: deed}` once per trial folder.

    Sleeps `sleep_s` at every batch; `first_run_sleep_s` only until the trial was stopped once, so that a test has time
    to stop it and need not wait for its end.
    """

    def __init__(self, context: trek.TrialContext) -> None:
        self.context = context

    def build_model(self) -> nn.Module:
        return nn.Linear(4, 1)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=self.context.get_hparam("learning_rate"))

    def build_training_data_loader(self) -> Any:
        return trek.DataLoader(self._data(), batch_size=self.context.get_per_slot_batch_size())

    def build_validation_data_loader(self) -> Any:
        return trek.DataLoader(self._data(), batch_size=64)

    def train_batch(self, batch: Any, model: nn.Module, epoch_idx: int, batch_idx: int) -> Any:
        hparams = self.context.get_hparams()
        time.sleep(hparams.get("sleep_s", 0))
        time.sleep(hparams.get("first_run_sleep_s", 0) if os.environ.get("TREK_RUN") == "1" else 0)
        deed = hparams.get("deeds", {}).get(f"batch_{batch_idx}")
        if deed is not None:
            self._do(deed)
        x, y = batch
        return {"loss": nn.functional.mse_loss(model(x), y)}

    def evaluate_batch(self, batch: Any, model: nn.Module) -> Any:
        x, y = batch
        return {"validation_error": nn.functional.mse_loss(model(x), y)}

    def _data(self) -> Any:
        x = torch.randn(256, 4, generator=torch.Generator().manual_seed(0))
        return torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))

    def _do(self, deed: str) -> None:
        if deed == "raise":
            raise ZeroDivisionError("the user's own mistake")
        if deed == "artifact":
            self.context.log_artifact(b"x,y", "tables/a.csv")
        done = Path(os.environ["TREK_RUN_DIR"]).parent / f"done-{deed}"
        if deed == "die_once" and not done.exists():
            done.touch()
            os.kill(os.getpid(), signal.SIGKILL)


class NotAScalar(LineTrial):
    """Returns a loss for every record."""

    def train_batch(self, batch: Any, model: nn.Module, epoch_idx: int, batch_idx: int) -> Any:
        x, y = batch
        return {"loss": (model(x) - y) ** 2}


class SignTrial(LineTrial):
    """A classifier."""

    def build_model(self) -> nn.Module:
        return nn.Linear(4, 2)

    def train_batch(self, batch: Any, model: nn.Module) -> Any:
        return {"loss": nn.functional.cross_entropy(model(batch[0]), batch[1])}

    def evaluate_batch(self, batch: Any, model: nn.Module) -> Any:
        return {"validation_error": (model(batch[0]).argmax(1) != batch[1]).float().mean()}

    def _data(self) -> Any:
        x = torch.randn(256, 4, generator=torch.Generator().manual_seed(0))
        return torch.utils.data.TensorDataset(x, (x.sum(1) > 0).long())
