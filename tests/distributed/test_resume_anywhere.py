"""Several processes resume from the checkpoint of any batch, to the bit; many runs in one gang."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Sampler, TensorDataset

import trek
from trek.testing.resuming import ResumedTrial, differences, saved_state
from trek.train.session import train_trial
from trek.train.settings import TrainSettings


def resume_everywhere(tr: trek.Traveler, folder: str, configs: list[dict[str, Any]]) -> list[str]:
    """What differed from the run that never stopped, in any of `configs`."""
    found: list[str] = []
    for number, config in enumerate(configs):
        hparams, settings = dict(config["hparams"]), dict(config["settings"])
        place = Path(folder) / f"{tr.settings.strategy}-{number}"
        whole, rows = train(tr, place / "whole", hparams, settings, checkpoint_period=trek.batches(1), keep_last=99)
        every = config.get("every", 4)
        for saved in sorted((place / "whole").iterdir())[::every]:
            done = trek.Checkpoint(saved).batches
            ended, resumed_rows = train(tr, place / saved.name, hparams, settings, resume=saved)
            if resumed_rows != [one[done:] for one in rows]:
                found.append(f"{config}: rows after batch {done}")
            if tr.world.is_leader:
                unlike = differences(saved_state(ended), saved_state(whole))
                found += [f"{config}: {path} after batch {done}" for path in list(unlike)[:3]]
            tr.barrier()
    return found


def train(
    tr: trek.Traveler,
    place: Path,
    hparams: dict[str, Any],
    settings: dict[str, Any],
    *,
    resume: Any = None,
    **more: Any,
) -> tuple[Any, list[list[list[int]]]]:
    """Train to the end; the last checkpoint on the leader, and the rows of every batch by rank."""
    ResumedTrial.rows = []
    outcome = train_trial(
        ResumedTrial,
        hparams={"global_batch_size": 4, **hparams},
        settings=TrainSettings.of(
            None,
            max_length=trek.epochs(2),
            validation_period=trek.batches(5),
            report_period=3,
            checkpoint_policy="none",
            show_progress=False,
            strategy=tr.settings.strategy,
            **{**settings, **more},
        ),
        world=tr.world,
        checkpoint_dir=place,
        resume=resume,
    )
    return outcome.checkpoint, tr.strategy.gather(ResumedTrial.rows)


CONFIGS: list[dict[str, Any]] = [
    {"hparams": {"data": "trek_shuffled", "scheduler": "batch", "adam": True}, "settings": {}},
    {"hparams": {"data": "numpy", "scheduler": "one_cycle"}, "settings": {"accumulate": 2}},
    {"hparams": {"data": "in_place"}, "settings": {}},
    {"hparams": {"data": "batch_sampler", "scheduler": "epoch"}, "settings": {"accumulate": 3}},
    {"hparams": {"data": "own_noise", "scheduler": "cosine"}, "settings": {"accumulate": 3}, "every": 2},
    {"hparams": {"data": "plain"}, "settings": {}},
    {"hparams": {"data": "stream"}, "settings": {"accumulate": 3}, "every": 2},
    {"hparams": {"data": "own_stream"}, "settings": {"accumulate": 2}},
]


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_processes_resumed_after_any_batch_go_on_as_if_they_had_never_stopped(strategy: str, tmp_path: Path) -> None:
    configs = CONFIGS if strategy == "ddp" else [CONFIGS[0], CONFIGS[4], CONFIGS[6]]
    found = trek.run(resume_everywhere, str(tmp_path), configs, workers=2, strategy=strategy, show_progress=False)
    assert found == []


class Unseeded(Sampler[int]):
    """Each process seeds it anew."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng()

    def __len__(self) -> int:
        return 24

    def __iter__(self) -> Iterator[int]:
        return iter(self.rng.permutation(24).tolist())


class Written(trek.Trial):
    """Writes the rows that it trains on to a folder."""

    def build_model(self) -> nn.Module:
        return nn.Linear(1, 1)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=0.1)

    def build_training_data_loader(self) -> Any:
        rows, size = TensorDataset(torch.arange(24.0)[:, None]), self.context.get_per_slot_batch_size()
        kind = self.context.get_hparam("data")
        if kind == "stream":
            return [(one,) for one in torch.arange(24.0)[:, None].split(2)]
        return trek.DataLoader(rows, size, **({"sampler": Unseeded()} if kind == "sampler" else {"shuffle": True}))

    def build_validation_data_loader(self) -> Any:
        return [torch.ones(1, 1)] * 3

    def train_batch(self, batch: Any, model: nn.Module) -> Any:
        with Path(self.context.get_hparam("folder"), str(os.getpid())).open("a") as file:
            file.write("".join(f"{row:.0f} " for row in batch[0].flatten().tolist()))
        return {"loss": model(batch[0]).mean()}

    def evaluate_batch(self, batch: Any, model: nn.Module) -> Any:
        return {"validation_loss": model(batch).mean()}


@pytest.mark.parametrize(
    ("data", "before", "after"),
    [("rows", (1, 4), (2, 8)), ("stream", (2, 4), (1, 2)), ("sampler", (2, 4), (3, 8))],
    ids=["rows", "stream", "sampler"],
)
def test_another_number_of_processes_trains_every_row_once(
    data: str, before: tuple[int, int], after: tuple[int, int], tmp_path: Path
) -> None:
    """A new process counted batches of the old size, and streams skipped as many batches on any number of processes."""

    def fit(workers: int, size: int, length: trek.Length, resume: Any = None) -> Any:
        hparams = {"data": data, "folder": str(tmp_path / "rows"), "global_batch_size": size}
        chosen: dict[str, Any] = {"show_progress": False, "sanity_check": 0}  # whose rows would be written too
        return trek.fit(Written, hparams=hparams, max_length=length, workers=workers, resume=resume, **chosen)

    (tmp_path / "rows").mkdir()
    part = fit(*before, trek.batches(4))
    fit(*after, trek.epochs(1), resume=part.checkpoint)
    rows = [int(row) for file in (tmp_path / "rows").iterdir() for row in file.read_text().split()]
    assert sorted(rows) == list(range(24))


def save_in_the_body(tr: trek.Traveler, save_at: int) -> list[float]:
    """A loop that saves between the backward pass and the step; the weights and the number of batches."""
    model = tr.add_model(nn.Linear(1, 1))
    optimizer = tr.add_optimizer(torch.optim.SGD(model.parameters(), lr=0.01))
    tr.add_scheduler(torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9), per="batch")
    data = tr.add_loader((torch.arange(24.0)[:, None] / 24,), global_batch_size=4, shuffle=True)
    for _ in tr.epochs(2):
        for (x,) in tr.train(data):
            tr.backward((model(x) - x).square().mean())
            if tr.position.batches == save_at:
                tr.save()
            tr.step(optimizer)
    return [*(p.item() for p in model.parameters()), float(tr.position.batches)]


def test_a_save_in_the_body_of_a_batch_holds_the_whole_batch_of_all_processes(home: Path) -> None:
    whole = trek.run(save_in_the_body, 3, workers=2, show_progress=False, keep_last=9)
    (saved,) = (home / "runs" / "save_in_the_body" / "checkpoints").glob("batch-0000000003-*")
    assert trek.run(save_in_the_body, 0, workers=2, show_progress=False, resume=saved) == whole


def test_workers_that_lease_save_together_when_one_of_them_asks(home: Path) -> None:
    options: dict[str, Any] = {"strategy": "ps", "servers": 1, "show_progress": False, "keep_last": 9}
    assert trek.run(save_in_the_body, 3, workers=2, **options)[-1] == 12
    (saved,) = (home / "runs" / "save_in_the_body" / "checkpoints").iterdir()
    assert 3 <= trek.Checkpoint(saved).batches <= 6
