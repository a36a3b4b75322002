"""`save` may be called anywhere in a run: a resume is the run that never stopped, to the bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

import trek
from trek.testing.resuming import ResumedTrial, differences, saved_state
from trek.train.callbacks.callback import Callback

PLACES = (
    *("epoch start", "batch start", "before step", "after step", "batch end"),
    *("after train", "in validation", "after validation"),
)


def train(tr: trek.Traveler, place: str, leaves_early: bool = False) -> None:
    """A loop of the user's own with everything that follows the body of a batch."""
    model = tr.add_model(nn.Sequential(nn.Linear(1, 4), nn.BatchNorm1d(4), nn.Dropout(0.3), nn.Linear(4, 1)))
    optimizer = tr.add_optimizer(torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9))
    tr.add_scheduler(lr_scheduler.ExponentialLR(optimizer, 0.9), per="batch")
    tr.add_scheduler(lr_scheduler.ExponentialLR(optimizer, 0.8), per="step")
    tr.add_scheduler(lr_scheduler.ExponentialLR(optimizer, 0.7), per="epoch")
    tr.add_scheduler(lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=0.5), per="epoch")
    data = tr.add_loader((torch.arange(22.0)[:, None],), global_batch_size=4, shuffle=True)

    def at(name: str) -> None:
        if name == place:
            tr.save()
        torch.rand(1)  # what follows a save draws random numbers

    for _ in tr.epochs(2):
        at("epoch start")
        for (x,) in tr.train(data):
            at("batch start")
            loss = (model(x * torch.rand(())) - x).square().mean() / 100
            tr.backward(loss)
            at("before step")
            tr.step(optimizer)
            at("after step")
            tr.log(loss=loss)
            at("batch end")
            if leaves_early and tr.position.epoch_batch == 3:
                break
        at("after train")
        for (x,) in tr.validate(data):
            tr.log(loss=(model(x) - x).square().mean())
            at("in validation")
        at("after validation")
    tr.save()


def run(folder: Path, place: str, *, resume: Path | None = None, **options: Any) -> list[Path]:
    """The checkpoints in the order of their positions, the last one that of the end."""
    leaves_early = options.pop("leaves_early", False)
    options = {"keep_last": 99, "report_period": 3, "show_progress": False, "metric": "loss", **options}
    settings = {"ema_decay": 0.5, "checkpoint_dir": folder, "resume": resume, "workers": 1, **options}
    trek.run(train, place, leaves_early, **settings)
    return sorted(folder.iterdir(), key=lambda path: float(trek.Checkpoint(path).manifest["time_s"]))


@pytest.mark.parametrize(("place", "accumulate"), [*((place, 1) for place in PLACES), ("before step", 2)])
def test_a_run_resumed_from_a_save_anywhere_in_the_loop_is_the_run_that_never_stopped(
    place: str, accumulate: int, tmp_path: Path
) -> None:
    unsaved = run(tmp_path / "unsaved", "", accumulate=accumulate)[-1]
    whole = run(tmp_path / "whole", place, accumulate=accumulate)
    assert len(whole) > 2
    assert not list(differences(saved_state(whole[-1]), saved_state(unsaved))), "saving changed training"
    for saved in {whole[0], whole[len(whole) // 2], whole[-2]}:
        resumed = run(tmp_path / saved.name, "", resume=saved, accumulate=accumulate)[-1]
        assert not list(differences(saved_state(resumed), saved_state(unsaved))), saved.name


def test_a_save_in_an_epoch_that_the_body_leaves_early_continues_with_the_next_epoch(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", "after train", leaves_early=True)
    for saved in whole[:1]:
        resumed = run(tmp_path / saved.name, "", resume=saved, leaves_early=True)[-1]
        assert not list(differences(saved_state(resumed), saved_state(whole[-1]))), saved.name


def test_a_save_returns_the_id_of_the_checkpoint_that_is_taken_later(tmp_path: Path) -> None:
    returned: list[Any] = []

    def loop(tr: trek.Traveler) -> None:
        tr.add_model(nn.Linear(1, 1))
        for _ in tr.epochs(1):
            for _ in tr.train([torch.ones(1, 1)] * 3):
                returned.extend([tr.save(), tr.save()])

    trek.run(loop, workers=1, checkpoint_dir=tmp_path / "saved", keep_last=9, show_progress=False)
    assert returned[0::2] == returned[1::2]
    assert sorted({*returned}) == sorted(trek.Checkpoint(path).uuid for path in (tmp_path / "saved").iterdir())


@pytest.mark.parametrize("leave", ["batch", "epoch"])
def test_a_save_before_the_loop_is_left_is_taken(leave: str, tmp_path: Path) -> None:
    def loop(tr: trek.Traveler) -> None:
        tr.add_model(nn.Linear(1, 1))
        for _ in tr.epochs(4):
            for _ in tr.train([torch.ones(1, 1)] * 3):
                if leave == "batch":
                    tr.save()
                    return
            tr.save()
            break

    trek.run(loop, workers=1, checkpoint_dir=tmp_path / "saved", show_progress=False)
    (path,) = (tmp_path / "saved").iterdir()
    assert trek.Checkpoint(path).batches == (1 if leave == "batch" else 3)


def test_a_validation_that_is_left_early_gives_the_trained_weights_back() -> None:
    def loop(tr: trek.Traveler) -> list[float]:
        model = tr.add_model(nn.Linear(1, 1, bias=False))
        optimizer = tr.add_optimizer(torch.optim.SGD(model.parameters(), lr=1.0))
        weights: list[float] = []
        for _ in tr.epochs(1):
            for x in tr.train([torch.ones(1, 1)] * 2):
                tr.backward(model(x).sum())
                tr.step(optimizer)
            weights.append(model.weight.item())
            for _ in tr.validate([torch.ones(1, 1)] * 2):
                break
            weights.append(model.weight.item())
            assert model.training
        return weights

    before, after = trek.run(loop, workers=1, ema_decay=0.5, show_progress=False)
    assert before == after


HOOKS = (
    *("on_training_start", "on_training_epoch_start", "on_training_epoch_end", "on_training_workload_end"),
    *("on_validation_start", "on_validation_epoch_end", "on_validation_end"),
)


class Saving(Callback):
    """Saves in one hook."""

    def __init__(self, hook: str, save: Callable[[], Any]) -> None:
        setattr(self, hook, lambda *_args: save())


class SavedByCallback(ResumedTrial):
    """Saves where the hyperparameter `hook` says."""

    def build_callbacks(self) -> dict[str, Callback]:
        hook = self.context.get_hparam("hook")
        return {"saving": Saving(hook, self.context.traveler.save)} if hook else {}

    def train_batch(self, batch: Any, model: nn.Module) -> dict[str, Any]:
        if self.context.get_hparam("hook") == "train_batch":
            self.context.traveler.save()
        return super().train_batch(batch, model)


@pytest.mark.parametrize("hook", [*HOOKS, "train_batch"])
def test_a_run_resumed_from_a_save_in_a_callback_is_the_run_that_never_stopped(hook: str) -> None:
    def fit(hook: str, resume: Path | None = None) -> trek.Result:
        SavedByCallback.rows = []
        return trek.fit(
            SavedByCallback,
            hparams={"global_batch_size": 4, "data": "trek_shuffled", "scheduler": "batch", "hook": hook},
            max_length=trek.epochs(2),
            validation_period=trek.batches(5),
            report_period=3,
            checkpoint_policy="none",
            keep_last=99,
            show_progress=False,
            resume=resume,
        )

    unsaved, whole = fit(""), fit(hook)
    assert unsaved.checkpoint is not None
    expected = saved_state(unsaved.checkpoint.path)
    places = sorted((whole.path / "checkpoints").iterdir())
    assert len(places) > 1
    for saved in {places[0], places[-2]}:
        resumed = fit("", resume=saved)
        assert resumed.checkpoint is not None
        assert not list(differences(saved_state(resumed.checkpoint.path), expected)), saved.name
