"""Buffers that training changes, and schedulers that step in the middle of a group of accumulated batches, are part of
what `elastic="exact"` keeps to the bit, whoever is killed and joins."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import trek
from trek.errors import InputError

pytestmark = [pytest.mark.usefixtures("warm_dir"), pytest.mark.timeout(300)]


class Normalised(nn.Module):
    """A normaliser that forward passes read and write, one that is not saved, and a batch norm."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("scale", torch.ones(()), persistent=False)
        self.register_buffer("constant", torch.eye(4).to_sparse(), persistent=False)
        self.net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.2), nn.Linear(6, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
            self.scale = self.scale * 0.9 + 0.1 * x.detach().std()
        return self.net((x - self.mean) / self.scale)


def train(tr: trek.Traveler, kills: str, killed: Path) -> list[list[float]]:
    """Kills "leader" or "other" in the middle of training, once."""
    torch.manual_seed(0)
    model = tr.add_model(Normalised())
    optimizer = tr.add_optimizer(torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9))
    tr.add_scheduler(torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9), per="batch")
    rows = torch.randn(48, 4, generator=torch.Generator().manual_seed(1)) * torch.tensor([1.0, 3.0, 9.0, 1.0])
    data = tr.add_loader((rows, rows.sum(1, keepdim=True)), global_batch_size=6, shuffle=True)
    for _ in tr.epochs(2):
        for x, y in tr.train(data):
            loss = F.mse_loss(model(x), y)
            tr.backward(loss)
            is_chosen = tr.world.is_leader == (kills == "leader") and tr.position.batches == 4 and tr.world.size == 2
            if kills and is_chosen and not killed.exists():
                killed.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            tr.step(optimizer)
            while kills and killed.exists() and tr.world.size == 1 and not tr.group.wants_meeting:
                pass  # so that the worker that replaces it joins in the middle
    buffers = [buffer for buffer in model.buffers() if buffer.layout is torch.strided]
    return [tensor.detach().flatten().tolist() for tensor in [*model.parameters(), *buffers]]


@pytest.mark.parametrize(("kills", "accumulate"), [("leader", 1), ("other", 2)])
def test_parameters_and_buffers_are_those_of_an_undisturbed_run(kills: str, accumulate: int, tmp_path: Path) -> None:
    """A worker that joined, and a batch that was given again, each lost what one batch had done to buffers. A scheduler
    stepped again with a batch that was given again because a later one of its group was interrupted."""
    options: dict[str, Any] = {"workers": (1, 2), "elastic": "exact", "show_progress": False, "accumulate": accumulate}
    undisturbed = trek.run(train, "", tmp_path / "killed", **options)
    assert trek.run(train, kills, tmp_path / "killed", **options) == undisturbed
    assert (tmp_path / "killed").exists()


class Growing(nn.Linear):
    """Its buffer has another shape after every batch."""

    def __init__(self) -> None:
        super().__init__(4, 1)
        self.register_buffer("cache", torch.zeros(0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.cache = torch.zeros(len(self.cache) + 1)
        return super().forward(x)


def train_growing(tr: trek.Traveler) -> None:
    model = tr.add_model(Growing())
    optimizer = tr.add_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    data = tr.add_loader((torch.ones(8, 4),), global_batch_size=4)
    for _ in tr.epochs(1):
        for (x,) in tr.train(data):
            tr.backward(model(x).mean())
            tr.step(optimizer)


def test_a_buffer_that_changes_its_shape_is_refused() -> None:
    with pytest.raises(InputError, match=r"training changed that of 'cache'\. Make it with its final shape"):
        trek.run(train_growing, workers=(1, 2), elastic="exact", show_progress=False)
