"""Several processes train the same to the bit with a dry pass before the run and without; many runs in one gang."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import trek
from trek.errors import ConfigError
from trek.testing.resuming import ResumedTrial, differences, saved_state
from trek.testing.trials import PointsTrial
from trek.train.session import train_trial
from trek.train.settings import TrainSettings


class Buffers(ResumedTrial):
    """With batch norm, and a buffer that each rank changes in its own way."""

    def build_model(self) -> nn.Module:
        model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.3), nn.Linear(4, 1))
        model.register_buffer("mean", torch.zeros(3))
        return model

    def train_batch(self, batch: Any, model: nn.Module) -> dict[str, Any]:
        rows, values = batch
        type(self).rows.append(rows.tolist())
        model.mean.lerp_(values.mean(0), 0.1)
        return {"loss": F.mse_loss(model(values - model.mean), torch.zeros(len(values), 1))}


def train(tr: trek.Traveler, trial: type[trek.Trial], place: Path, config: dict[str, Any], num_batches: int) -> Any:
    """The rows of every batch by rank, and on the leader the state at the end."""
    ResumedTrial.rows = []
    outcome = train_trial(
        trial,
        hparams={"global_batch_size": 4, **config["hparams"]},
        settings=TrainSettings.of(
            None,
            max_length=trek.epochs(2),
            validation_period=trek.batches(5),
            report_period=3,
            show_progress=False,
            strategy=tr.settings.strategy,
            sanity_check=num_batches,
            **config["settings"],
        ),
        world=tr.world,
        checkpoint_dir=place,
    )
    rows = tr.strategy.gather(ResumedTrial.rows)
    return rows, saved_state(outcome.checkpoint) if outcome.checkpoint and tr.world.is_leader else None


def compare(tr: trek.Traveler, folder: str, configs: list[dict[str, Any]]) -> list[str]:
    """What differs from the run without a dry pass, in any of `configs`."""
    found: list[str] = []
    for number, config in enumerate(configs):
        trial = Buffers if config.get("buffers") else ResumedTrial
        place = Path(folder) / str(number)
        rows, state = train(tr, trial, place / "0", config, 0)
        for num_batches in (1, 3):
            other_rows, other = train(tr, trial, place / str(num_batches), config, num_batches)
            if other_rows != rows:
                found.append(f"{config}: rows with {num_batches}")
            found += [f"{config}: {path} with {num_batches}" for path in list(differences(other, state))[:3]]
    return found


CONFIGS: list[dict[str, Any]] = [
    {"hparams": {"data": "trek_shuffled", "scheduler": "batch", "adam": True}, "settings": {"accumulate": 2}},
    {"hparams": {"data": "numpy", "scheduler": "one_cycle"}, "settings": {"ema_decay": 0.9, "clip_norm": 0.1}},
    {"hparams": {"data": "own_noise", "num_workers": 1}, "settings": {"precision": "bf16"}},
    {"hparams": {"data": "own_stream"}, "settings": {"accumulate": 3}},
    {"hparams": {"data": "plain"}, "settings": {}},
    {"hparams": {"data": "in_place", "adam": True}, "settings": {"accumulate": 3}, "buffers": True},
]


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_several_processes_train_the_same_with_a_dry_pass(strategy: str, tmp_path: Path) -> None:
    configs = CONFIGS if strategy == "ddp" else [CONFIGS[0], CONFIGS[1]]
    found = trek.run(compare, str(tmp_path), configs, workers=2, strategy=strategy, show_progress=False)
    assert found == []


def test_a_mistake_is_found_by_all_processes_before_the_run_begins() -> None:
    with pytest.raises(ConfigError, match="metric 'acuracy' not found in the validation metrics"):
        trek.fit(
            PointsTrial,
            hparams={"global_batch_size": 8},
            max_length=trek.epochs(1),
            metric="acuracy",
            workers=2,
            show_progress=False,
        )
