"""How a block of rows is updated: by the functions behind torch.optim's classes, one for each kind of optimizer.

They do the arithmetic of the classes without their bookkeeping, which takes longer than the arithmetic of a block.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim.adagrad import adagrad
from torch.optim.adam import adam
from torch.optim.rmsprop import rmsprop
from torch.optim.sgd import sgd

from trek.ps.ftrl import follow_leader


@dataclass(frozen=True)
class RowUpdate:
    """One step of some rows. `values` and `slots` change in place."""

    values: torch.Tensor
    gradients: torch.Tensor
    slots: Mapping[str, torch.Tensor]
    """The optimizer's state of the rows, by name."""
    group: Mapping[str, Any]
    """The optimizer's settings."""
    lr: float
    step: int
    """The number of this step, from 1."""

    def settings(self, *names: str) -> dict[str, Any]:
        """Some of the settings, with the learning rate."""
        return {"lr": self.lr, **{name: self.group[name] for name in names}}

    def state(self, name: str, *, is_kept: bool = True) -> list[torch.Tensor]:
        """What torch's functions take for a slot: one tensor for each parameter, or none if it is not kept."""
        return [self.slots[name]] if is_kept else []

    @property
    def steps(self) -> list[torch.Tensor]:
        """The number of steps before this one, which torch's functions increment."""
        return [torch.tensor(float(self.step - 1))]


def update_by_sgd(rows: RowUpdate) -> None:
    """As torch.optim.SGD."""
    settings = rows.settings("weight_decay", "momentum", "dampening", "nesterov", "maximize")
    sgd([rows.values], [rows.gradients], [rows.slots.get("momentum_buffer")], foreach=False, **settings)


def update_by_adagrad(rows: RowUpdate) -> None:
    """As torch.optim.Adagrad."""
    settings = rows.settings("weight_decay", "lr_decay", "eps", "maximize")
    adagrad([rows.values], [rows.gradients], rows.state("sum"), rows.steps, foreach=False, **settings)


def update_by_adam(rows: RowUpdate) -> None:
    """As torch.optim.Adam and AdamW."""
    beta1, beta2 = rows.group["betas"]
    settings = rows.settings("amsgrad", "weight_decay", "eps", "maximize", "decoupled_weight_decay")
    largest = rows.state("max_exp_avg_sq", is_kept=rows.group["amsgrad"])
    means, squares = rows.state("exp_avg"), rows.state("exp_avg_sq")
    betas = {"beta1": beta1, "beta2": beta2}
    adam([rows.values], [rows.gradients], means, squares, largest, rows.steps, foreach=False, **betas, **settings)


def update_by_sparse_adam(rows: RowUpdate) -> None:
    """As torch.optim.SparseAdam, whose own function takes sparse tensors and is ten times as slow for it."""
    beta1, beta2 = rows.group["betas"]
    mean, square = rows.slots["exp_avg"], rows.slots["exp_avg_sq"]
    gradients = -rows.gradients if rows.group["maximize"] else rows.gradients
    mean.add_(gradients.sub(mean).mul_(1 - beta1))
    square.add_(gradients.pow(2).sub_(square).mul_(1 - beta2))
    size = rows.lr * math.sqrt(1 - beta2**rows.step) / (1 - beta1**rows.step)
    rows.values.add_(-size * mean.div(square.sqrt().add_(rows.group["eps"])))


def update_by_rmsprop(rows: RowUpdate) -> None:
    """As torch.optim.RMSprop."""
    settings = rows.settings("maximize", "alpha", "eps", "weight_decay", "momentum", "centered")
    means = rows.state("grad_avg", is_kept=rows.group["centered"])
    momenta = rows.state("momentum_buffer", is_kept=rows.group["momentum"] > 0)
    squares = rows.state("square_avg")
    rmsprop([rows.values], [rows.gradients], squares, means, momenta, rows.steps, foreach=False, **settings)


def update_by_ftrl(rows: RowUpdate) -> None:
    """As trek.ps.FTRL."""
    total, linear = rows.slots["sum"], rows.slots["linear"]
    follow_leader(rows.values, rows.gradients, total=total, linear=linear, **rows.settings("l1", "l2", "beta"))
