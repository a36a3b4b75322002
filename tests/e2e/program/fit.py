"""`trek.fit` in a command of a trial: a Trial that fits a line, whose own length is not the experiment's."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import torch
from torch import nn

import trek

hparams = trek.hparams(lr=0.05, global_batch_size=32, sleep_s=0.0, deed="")


class Line(trek.Trial):
    def build_model(self) -> nn.Module:
        return nn.Linear(4, 1)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=self.context.get_hparam("lr"))

    def build_training_data_loader(self) -> Any:
        x = torch.randn(256, 4, generator=torch.Generator().manual_seed(0))
        return trek.DataLoader((x, x.sum(1, keepdim=True)), self.context.get_per_slot_batch_size(), shuffle=True)

    build_validation_data_loader = build_training_data_loader

    def train_batch(self, batch: Any, model: nn.Module, batch_idx: int) -> Any:
        is_first_run = os.environ.get("TREK_RUN") == "1"
        time.sleep(self.context.get_hparam("sleep_s") if is_first_run else 0)  # until it was paused
        if self.context.get_hparam("deed") == "die once" and batch_idx == 11 and is_first_run:
            os.kill(os.getpid(), signal.SIGKILL)
        return nn.functional.mse_loss(model(batch[0]), batch[1])

    def evaluate_batch(self, batch: Any, model: nn.Module) -> Any:
        return {"validation_error": nn.functional.mse_loss(model(batch[0]), batch[1])}


if __name__ == "__main__":
    result = trek.fit(Line, hparams=hparams, max_length=trek.epochs(5), precision="fp32")
    print(f"rank {trek.World.from_env().rank} trained to {result.checkpoint}", flush=True)
