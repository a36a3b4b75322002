"""One process of Trek is plain PyTorch, to the bit."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import trek
from trek.testing.trials import PointsTrial, make_points

Weights = dict[str, torch.Tensor]


def hand_written(
    *,
    rows: int,
    batch_size: int,
    epochs: int,
    dropout: float,
    momentum: float,
    precision: str = "fp32",
    clip: float | None,
) -> tuple[Weights, list[float]]:
    """The loop a careful user writes, with torch's DistributedSampler's order for a world of one."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    points, labels = make_points(rows)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(dropout), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=momentum)
    scaler = torch.amp.GradScaler("cpu", enabled=precision == "fp16")
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision, torch.float32)
    losses = []
    for epoch in range(epochs):
        order = torch.randperm(rows, generator=torch.Generator().manual_seed(epoch))
        for start in range(0, rows, batch_size):
            chosen = order[start : start + batch_size]
            with torch.autocast("cpu", dtype=dtype, enabled=precision != "fp32"):
                loss = F.cross_entropy(model(points[chosen]), labels[chosen])
            scaler.scale(loss).backward()
            if clip is not None:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            losses.append(loss.item())
    return dict(model.state_dict()), losses


def assert_same(first: Weights, second: Weights) -> None:
    assert first.keys() == second.keys()
    for name in first:
        assert torch.equal(first[name], second[name]), name


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("clip", [None, 0.5])
def test_solo_is_a_hand_written_loop_to_the_bit(precision: str, clip: float | None) -> None:
    expected, losses = hand_written(
        rows=70, batch_size=16, epochs=2, dropout=0.2, momentum=0.9, precision=precision, clip=clip
    )
    result = trek.fit(
        PointsTrial,
        hparams={"global_batch_size": 16, "rows": 70, "dropout": 0.2, "momentum": 0.9},
        max_length=trek.epochs(2),
        precision=precision,
        clip_norm=clip,
        report_period=1,
        show_progress=False,
    )
    assert result.checkpoint is not None
    assert_same(expected, result.checkpoint.state_dict())
    assert [row["loss"] for row in result.metrics if row["group"] == "training"] == losses


def test_the_explicit_loop_and_the_trial_give_the_same_weights() -> None:
    def train(tr: trek.Traveler) -> Weights:
        model = tr.add_model(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.0), nn.Linear(8, 2)))
        optimizer = tr.add_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
        data = tr.add_loader(make_points(70), batch_size=16, shuffle=True)
        for _ in tr.epochs(2):
            for points, labels in tr.train(data):
                loss = F.cross_entropy(model(points), labels)
                tr.backward(loss)
                tr.step(optimizer)
                tr.log(loss=loss)
        return dict(model.state_dict())

    explicit = trek.run(train, workers=1, show_progress=False)
    trial = trek.fit(
        PointsTrial, hparams={"global_batch_size": 16, "rows": 70}, max_length=trek.epochs(2), show_progress=False
    )
    assert trial.checkpoint is not None
    assert_same(explicit, trial.checkpoint.state_dict())


def test_a_short_last_group_of_accumulated_batches_counts_by_its_samples() -> None:
    """Five batches accumulated by four: the fifth makes a step of its own, at full weight."""
    points, labels = make_points(5 * 8 - 3)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.0), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    order = torch.randperm(len(points), generator=torch.Generator().manual_seed(0))
    for chosen in (order[:32], order[32:]):
        F.cross_entropy(model(points[chosen]), labels[chosen]).backward()
        optimizer.step()
        optimizer.zero_grad()
    result = trek.fit(
        PointsTrial,
        hparams={"global_batch_size": 8, "rows": 37},
        max_length=trek.epochs(1),
        accumulate=4,
        show_progress=False,
    )
    assert result.checkpoint is not None
    for name, weights in model.state_dict().items():
        torch.testing.assert_close(weights, result.checkpoint.state_dict()[name], rtol=1e-6, atol=1e-7)


def test_metrics_are_averaged_by_sample_not_by_batch() -> None:
    result = trek.fit(
        PointsTrial, hparams={"global_batch_size": 32, "rows": 64}, max_length=trek.epochs(1), show_progress=False
    )
    assert result.checkpoint is not None
    assert result.best is not None
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.0), nn.Linear(8, 2))
    model.load_state_dict(result.checkpoint.state_dict())
    points, labels = make_points(50)
    accuracy = (model(points).argmax(1) == labels).float().mean().item()
    assert result.best["accuracy"] == pytest.approx(accuracy, abs=1e-7)


def test_the_same_seed_gives_the_same_losses_and_another_seed_others() -> None:
    def losses(seed: int) -> list[Any]:
        result = trek.fit(
            PointsTrial,
            hparams={"global_batch_size": 16, "dropout": 0.5, "data": "mapped"},
            max_length=trek.epochs(1),
            report_period=1,
            seed=seed,
            show_progress=False,
        )
        return [row["loss"] for row in result.metrics if row["group"] == "training"]

    assert losses(3) == losses(3)
    assert losses(3) != losses(4)
