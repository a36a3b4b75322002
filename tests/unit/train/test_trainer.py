"""Trainer: drives a Trial that a program has made itself, with lengths that are set late, and its own scaler."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import trek
from trek.errors import ConfigError, InputError
from trek.testing.trials import PointsTrial

HPARAMS = {"global_batch_size": 8, "rows": 24, "lr": 0.1}


class OwnContext(trek.TrialContext):
    def get_rows(self) -> int:
        return int(self.get_hparam("rows"))


class Points(PointsTrial):
    context_class = OwnContext
    seen: ClassVar[list[int]] = []

    def __init__(self, context: OwnContext) -> None:
        super().__init__(context)
        self.seen.append(context.get_rows())


def test_a_trial_gets_the_context_of_its_class() -> None:
    trek.fit(Points, hparams=HPARAMS, max_length=trek.batches(1), show_progress=False)
    assert Points.seen == [24]


def test_a_trial_that_was_made_before_trains_to_lengths_set_later_and_resumes(tmp_path: Path) -> None:
    checkpoints = tmp_path / "checkpoints"
    batches = []
    for length in (2, 5):
        with trek.Traveler(checkpoint_dir=checkpoints, folder=tmp_path, show_progress=False) as traveler:
            context = OwnContext(traveler, hparams=HPARAMS)
            trainer = trek.Trainer(Points(context), context)
            traveler.set_lengths(max_length=trek.batches(length), checkpoint_policy="none")
            trainer.fit(resume="latest")
            batches.append(traveler.position.batches)
    assert batches == [2, 5]
    assert len(list(checkpoints.iterdir())) == 1


def test_only_lengths_change_late() -> None:
    with trek.Traveler(show_progress=False) as traveler, pytest.raises(InputError, match="got 'precision'"):
        traveler.set_lengths(precision="bf16")


class Scaled(trek.Trial):
    """As a Trial that scales its losses itself is written."""

    scale: float = 1024.0

    def __init__(self, context: trek.TrialContext) -> None:
        super().__init__(context)
        self.model = context.wrap_model(nn.Linear(2, 1))
        self.opt = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.1))
        self.scaler = context.wrap_scaler(torch.amp.GradScaler("cpu", init_scale=self.scale))

    def build_training_data_loader(self) -> Any:
        rows = torch.arange(16.0).reshape(8, 2) / 16
        return trek.DataLoader([(row, row.sum().reshape(1)) for row in rows], 4)

    build_validation_data_loader = build_training_data_loader

    def train_batch(self, batch: Any) -> Any:
        loss = F.mse_loss(self.model(batch[0]), batch[1])
        self.context.backward(self.scaler.scale(loss))
        self.context.step_optimizer(self.opt, clip_norm=0.1)
        self.scaler.update()
        return {"loss": loss}

    def evaluate_batch(self, batch: Any) -> Any:
        return {"loss": F.mse_loss(self.model(batch[0]), batch[1])}


class Unscaled(Scaled):
    scale = 1.0


def test_a_scaler_of_the_trial_changes_no_result_and_is_saved() -> None:
    scaled, plain = (
        trek.fit(one, max_length=trek.epochs(3), show_progress=False, seed=1) for one in (Scaled, Unscaled)
    )
    for name, weights in plain.checkpoint.state_dict().items():
        torch.testing.assert_close(scaled.checkpoint.state_dict()[name], weights)
    assert scaled.checkpoint.read().shared["optimization"]["precision"]["scale"] == 1024.0


def test_two_scalers_are_refused() -> None:
    with pytest.raises(ConfigError, match="'bf16' has a scaler or needs none"):
        trek.fit(Scaled, max_length=trek.epochs(1), show_progress=False, precision="bf16")
