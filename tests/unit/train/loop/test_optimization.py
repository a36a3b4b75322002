"""Schedulers of a worker that others train with follow the run, not the worker's own steps."""

from __future__ import annotations

import torch
from torch import nn

from trek.strategies import open_strategy
from trek.train.loop.optimization import Optimization
from trek.train.loop.precision import open_precision
from trek.world import World


def test_schedulers_follow_the_run_and_never_go_back() -> None:
    world = World()
    optimization = Optimization(open_strategy("solo", world), open_precision("fp32", world.device))
    model = optimization.add_model(nn.Linear(1, 1))
    optimizer = optimization.add_optimizer(torch.optim.SGD(model.parameters(), lr=1.0))
    optimization.add_scheduler(torch.optim.lr_scheduler.LambdaLR(optimizer, lambda steps: 1 / (1 + steps)), per="step")
    per_batch = optimization.add_scheduler(torch.optim.lr_scheduler.ConstantLR(optimizer), per="batch")
    optimization.counts_own_steps = False
    for _ in range(3):
        model(torch.ones(1, 1)).sum().backward()
        assert optimization.step()
    assert optimization.num_steps == 0
    optimization.follow(steps=3, batches=range(1, 7))
    assert (optimization.num_steps, per_batch.last_epoch) == (3, 6)
    optimization.follow(steps=2, batches=range(7, 6))
    assert (optimization.num_steps, per_batch.last_epoch) == (3, 6)
