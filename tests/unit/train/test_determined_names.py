"""The spellings of Determined's own fixtures, as public names."""

from __future__ import annotations

from collections import UserDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_sequence

import trek
from trek.errors import InputError
from trek.testing.trials import PointsTrial, make_points


def rates(trial: type[trek.Trial], **settings: Any) -> list[float]:
    """The learning rates after each batch."""
    options = {"max_length": trek.epochs(2), "report_period": 1, "show_progress": False, **settings}
    result = trek.fit(trial, hparams={"global_batch_size": 8, "rows": 24, "lr": 1.0}, **options)
    return [row["learning_rate"] for row in result.metrics if row["group"] == "system"]


Mode = trek.LRScheduler.StepMode


class Wrapped(trek.Trial):
    """As Determined's later fixtures are written."""

    mode: Any = Mode.STEP_EVERY_BATCH
    clips: ClassVar[list[Any]] = []
    left: ClassVar[list[bool]] = []

    def __init__(self, context: trek.TrialContext) -> None:
        super().__init__(context)
        self.model = context.wrap_model(nn.Linear(6, 2))
        self.sgd = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=context.get_hparam("lr")))
        scheduler = torch.optim.lr_scheduler.ExponentialLR(self.sgd, 0.5)
        context.wrap_lr_scheduler(scheduler, self.mode)

    def build_training_data_loader(self) -> Any:
        return trek.DataLoader(make_points(24), self.context.get_per_slot_batch_size())

    def build_validation_data_loader(self) -> Any:
        return trek.DataLoader(make_points(24), 8)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        points, labels = self.context.to_device(batch)
        loss = F.cross_entropy(self.model(points), labels)
        self.context.backward(loss)
        self.context.step_optimizer(self.sgd, clip_grads=self.clip, auto_zero_grads=False)
        self.left.append(self.model.weight.grad is not None)
        self.sgd.zero_grad()
        return {"loss": loss}

    def clip(self, parameters: Any) -> None:
        self.clips.append(torch.nn.utils.clip_grad_norm_(parameters, 1e-9))

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        return {"validation_loss": F.cross_entropy(self.model(batch[0]), batch[1])}


class PerEpoch(Wrapped):
    mode = Mode.STEP_EVERY_EPOCH


class PerStep(Wrapped):
    mode = Mode.STEP_EVERY_OPTIMIZER_STEP


class Manual(Wrapped):
    mode = Mode.MANUAL_STEP


@pytest.mark.parametrize(
    ("trial", "expected"),
    [
        (Wrapped, [0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625]),
        (PerStep, [0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625]),
        (PerEpoch, [1.0, 1.0, 1.0, 0.5, 0.5, 0.5]),
        (Manual, [1.0] * 6),
    ],
)
def test_a_step_mode_says_when_a_scheduler_steps(trial: type[trek.Trial], expected: list[float]) -> None:
    assert rates(trial) == expected


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_clip_grads_clips_the_gradients_of_the_step_and_they_may_be_kept(precision: str) -> None:
    """step_optimizer had no clip_grads."""
    Wrapped.clips, Wrapped.left = [], []
    result = trek.fit(
        Wrapped, hparams={"global_batch_size": 8, "lr": 0.1}, max_length=trek.epochs(2), precision=precision,
        show_progress=False,
    )  # fmt: skip
    assert len(Wrapped.clips) == 6
    assert all(0 < norm < 10 for norm in Wrapped.clips), "the gradients it gets are not scaled"
    assert all(Wrapped.left)
    losses = [row["validation_loss"] for row in result.metrics if row["group"] == "validation"]
    assert losses[0] == pytest.approx(losses[1], abs=1e-4), "hardly anything is left to learn from"


class Created(PointsTrial):
    def create_lr_scheduler(self, optimizer: torch.optim.Optimizer) -> Any:
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        return trek.LRScheduler(scheduler, step_mode=Mode.STEP_EVERY_BATCH, frequency=2)


def test_a_trial_may_create_a_scheduler_with_its_mode() -> None:
    assert rates(Created) == [1.0, 0.5, 0.5, 0.25, 0.25, 0.125]
    with pytest.raises(InputError, match=r"step_mode must be one of .*STEP_EVERY_EPOCH.*, got 'never'"):
        trek.LRScheduler(object(), "never")


class Draws(PointsTrial):
    def train_batch(self, batch: Any, model: nn.Module, batch_idx: int) -> dict[str, Any]:
        writer = self.context.get_tensorboard_writer()
        assert writer is self.context.get_tensorboard_writer()
        writer.add_scalar("own", 1.0, batch_idx)
        return super().train_batch(batch, model, batch_idx)


def test_the_tensorboard_writer_writes_to_the_folder_of_the_run() -> None:
    result = trek.fit(Draws, hparams={"global_batch_size": 50}, max_length=trek.epochs(1), show_progress=False)
    assert [path.name.split(".")[0] for path in Path(result.path).glob("events*")] == ["events"]


@dataclass(frozen=True)
class Fields:
    x: torch.Tensor
    name: str


def test_every_tensor_of_a_batch_is_moved_to_the_device() -> None:
    """Tensors in a UserDict (Hugging Face's batches) or a dataclass stayed where they were."""
    x, meta = torch.zeros(2), torch.device("meta")
    batch = {"pair": (x, [x]), "user": UserDict(a=x, b={"c": x}), "fields": Fields(x, "n"), "text": "t", "n": 3}
    moved = trek.to_device(batch, meta)
    tensors = [*moved["pair"][:1], *moved["pair"][1], moved["user"]["a"], moved["user"]["b"]["c"], moved["fields"].x]
    assert all(one.device == meta for one in tensors)
    assert (moved["text"], moved["n"], moved["fields"].name, type(moved["user"])) == ("t", 3, "n", UserDict)
    assert x.device.type == batch["user"]["a"].device.type == "cpu"  # type: ignore[index]
    assert trek.to_device(pack_sequence([x, x]), meta).data.device == meta
    assert trek.to_device(batch, torch.device("cpu")) is batch
    assert trek.to_device(batch, "cpu") is batch


def test_a_device_that_does_not_exist_is_named() -> None:
    """A name in place of a torch.device ended in an AttributeError."""
    with pytest.raises(InputError, match="device 'gpu' is not valid"):
        trek.to_device([torch.ones(1)], "gpu")


def test_parameters_are_reset_by_a_public_name() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    before = model[0].weight.clone()
    trek.reset_parameters(model)
    assert not torch.equal(model[0].weight, before)
