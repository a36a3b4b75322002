"""Precision in Trials that step their own optimizers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import trek
from trek.testing.trials import make_points

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Manual(trek.Trial):
    """Steps its optimizer itself, and looks at the formats that it computes in."""

    seen: dict[str, Any]

    def __init__(self, context: trek.TrialContext) -> None:
        super().__init__(context)
        self.model = context.wrap_model(nn.Linear(6, 2))
        self.sgd = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.1))
        Manual.seen = {}

    def build_training_data_loader(self) -> Any:
        return trek.DataLoader(make_points(40), 8)

    def build_validation_data_loader(self) -> Any:
        return trek.DataLoader(make_points(16), 8)

    def train_batch(self, batch: Any) -> dict[str, Any]:
        points, labels = batch
        output = self.model(points)
        self.seen["train"] = output.dtype
        loss = F.cross_entropy(output, labels)
        loss.register_hook(lambda grad: self.seen.update(backward=torch.is_autocast_enabled("cpu")))
        self.context.backward(loss)
        self.context.step_optimizer(self.sgd)
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            exact = F.linear(points, self.model.weight, self.model.bias)
        self.seen["error"] = float((self.model(points) - exact).abs().max().detach())
        return {"loss": loss}

    def evaluate_batch(self, batch: Any) -> dict[str, Any]:
        output = self.model(batch[0])
        self.seen["validate"] = output.dtype
        return {"validation_loss": F.cross_entropy(output, batch[1])}


class Simple(Manual):
    """The same training in the simple form."""

    def __init__(self, context: trek.TrialContext) -> None:
        self.context = context
        Manual.seen = {}

    def build_model(self) -> nn.Module:
        self.model = nn.Linear(6, 2)
        return self.model

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=0.1)

    def train_batch(self, batch: Any, model: nn.Module) -> Any:  # type: ignore[override]
        return F.cross_entropy(model(batch[0]), batch[1])


def fit(trial: type[trek.Trial], precision: str) -> dict[str, torch.Tensor]:
    result = trek.fit(trial, max_length=trek.epochs(1), precision=precision, show_progress=False)
    assert result.checkpoint is not None
    return result.checkpoint.state_dict()


@pytest.mark.parametrize("precision", DTYPES)
def test_a_manual_trial_trains_in_the_precision_asked_for(precision: str) -> None:
    """It used to train in fp32 and to validate in the precision asked for."""
    fit(Manual, precision)
    assert Manual.seen["train"] == Manual.seen["validate"] == DTYPES[precision]
    assert Manual.seen["backward"] is False


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_a_forward_pass_after_a_step_uses_the_new_weights(precision: str) -> None:
    """Autocast keeps casts of weights until its block ends, and the whole of train_batch is one block."""
    fit(Manual, precision)
    assert Manual.seen["error"] < 0.02


@pytest.mark.parametrize("precision", DTYPES)
def test_both_forms_of_a_trial_train_to_the_same_bits(precision: str) -> None:
    manual, simple = fit(Manual, precision), fit(Simple, precision)
    assert all(torch.equal(manual[name], simple[name]) for name in manual)


def test_the_context_has_autocast_for_other_forward_passes() -> None:
    with trek.Traveler(precision="bf16", world=trek.World(device_name="cpu"), show_progress=False) as tr:
        context = trek.TrialContext(tr, hparams={})
        with context.autocast():
            assert nn.Linear(2, 2)(torch.zeros(1, 2)).dtype == torch.bfloat16
