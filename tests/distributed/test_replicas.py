"""Ranks that build other models, optimizers or schedulers are refused at once, whatever keeps them together."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from torch import nn

import trek
from trek.errors import InputError

RUNS: dict[str, dict[str, Any]] = {
    "ddp": {"workers": 2},
    "fsdp": {"workers": 2, "strategy": "fsdp"},
    "elastic": {"workers": (1, 2)},
    "ps": {"workers": 2, "strategy": "ps", "servers": 1},
    "ps sync": {"workers": 2, "strategy": "ps", "servers": 1, "strategy_options": {"mode": "sync"}},
}


def train(tr: trek.Traveler, differs_in: str) -> None:
    is_other = os.environ["TREK_RANK"] == "1"
    width = 4 if is_other and differs_in == "shape" else 3
    deeper = [nn.Linear(3, 3)] if is_other and differs_in == "number" else []
    model = tr.add_model(nn.Sequential(nn.Linear(8, width), *deeper))
    optimizer = tr.add_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    if is_other and differs_in == "scheduler":
        tr.add_scheduler(torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9))
    for _ in tr.epochs(1):
        for x in tr.train([torch.ones(2, 8)] * 4):
            tr.backward(model(x).sum())
            tr.step(optimizer)


@pytest.mark.parametrize(
    ("strategy", "differs_in", "expected"),
    [
        ("ddp", "shape", r"parameter '0.weight' of the model is float32 of shape \(3, 8\) on rank 0 and .*\(4, 8\)"),
        ("ddp", "number", "parameter '1.weight' of the model is missing on rank 0 and float32"),
        ("ddp", "scheduler", "kind of the scheduler is missing on rank 0 and ExponentialLR on rank 1"),
        ("fsdp", "shape", r"parameter '0.weight' of the model is float32 of shape \(3, 8\) on rank 0"),
        ("elastic", "shape", "parameter '0.weight' of the model is float32 of shape"),
        ("ps", "number", "parameter '1.weight' of the model is"),
        ("ps sync", "shape", "parameter '0.weight' of the model is float32 of shape"),
    ],
)
def test_replicas_that_differ_are_refused_at_once(strategy: str, differs_in: str, expected: str) -> None:
    with pytest.raises(InputError, match=f"ranks must train equal replicas, but {expected}"):
        trek.run(train, differs_in, show_progress=False, **RUNS[strategy])


def add_lazy(tr: trek.Traveler) -> None:
    tr.add_model(nn.LazyLinear(1))


def test_a_model_whose_shapes_are_not_known_is_refused() -> None:
    with pytest.raises(InputError, match=r"the shape of 'weight' is not known yet, .*\. Run the model on one batch"):
        trek.run(add_lazy, workers=2, show_progress=False)


def train_on_own_batches(tr: trek.Traveler) -> None:
    model = tr.add_model(nn.Linear(8, 1))
    data = tr.add_loader((torch.ones(16, 8),), batch_size=2 if tr.world.is_leader else 4)
    for _ in tr.epochs(1):
        for (x,) in tr.train(data):
            tr.backward(model(x).sum())


def test_ranks_that_read_other_batches_are_refused_before_the_first() -> None:
    """The one with more batches waited for the other, until timeout_s."""
    with pytest.raises(
        InputError, match=r"batches of an epoch is 4 on rank 0 and 2 on rank 1\. Give every rank the same"
    ):
        trek.run(train_on_own_batches, workers=2, show_progress=False)
