"""Sharded replicas train what one process would, and a run may change strategy on its way."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import trek
from trek.errors import ConfigError
from trek.testing.trials import PointsTrial
from trek.train.result import Result

HPARAMS = {"global_batch_size": 6, "rows": 103, "double": True, "momentum": 0.9}


def fit(**settings: Any) -> Result:
    hparams = {**HPARAMS, **settings.pop("hparams", {})}
    return trek.fit(PointsTrial, hparams=hparams, max_length=trek.epochs(2), show_progress=False, **settings)


def assert_close(first: Result, second: Result, *, tolerance: float) -> None:
    assert first.checkpoint is not None
    assert second.checkpoint is not None
    expected = second.checkpoint.state_dict()
    for name, weights in first.checkpoint.state_dict().items():
        torch.testing.assert_close(weights, expected[name], rtol=tolerance, atol=tolerance)


def test_sharded_replicas_equal_one_process_and_resume_to_the_bit() -> None:
    sharded = fit(workers=2, strategy="fsdp", clip_norm=0.5, accumulate=2)
    assert_close(sharded, fit(clip_norm=0.5, accumulate=2), tolerance=1e-9)
    options: dict[str, Any] = {"workers": 2, "strategy": "fsdp", "clip_norm": 0.5, "accumulate": 2, "name": "part"}
    fit(hparams={"stop_at": 10}, **options)
    assert_close(fit(resume="latest", **options), sharded, tolerance=0.0)


def test_a_run_goes_on_under_another_strategy_with_its_optimizer_state() -> None:
    whole = fit()
    solo = fit(hparams={"stop_at": 16})
    assert solo.checkpoint is not None
    sharded = fit(hparams={"stop_at": 20}, workers=2, strategy="fsdp", resume=solo.checkpoint)
    assert sharded.checkpoint is not None
    assert 20 <= sharded.checkpoint.batches < 36
    assert_close(fit(workers=2, strategy="ddp", resume=sharded.checkpoint), whole, tolerance=1e-9)


def test_fsdp_alone_is_refused_with_a_remedy() -> None:
    with pytest.raises(ConfigError, match="at least 2 processes, got 1"):
        fit(strategy="fsdp")


class WithoutState(PointsTrial):
    """Plain SGD, whose state is empty, or Adam; and a running mean that training reads."""

    def build_model(self) -> torch.nn.Module:
        return Centred(super().build_model())

    def optimizer(self, model: torch.nn.Module) -> torch.optim.Optimizer:
        kind = torch.optim.Adam if self.context.get_hparams().get("adam") else torch.optim.SGD
        return kind(model.parameters(), lr=0.1)


class Centred(torch.nn.Module):
    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.register_buffer("mean", torch.zeros(6, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return self.inner(x - self.mean)


@pytest.mark.parametrize("adam", [False, True], ids=["sgd", "adam"])
def test_a_sharded_run_resumes_to_the_bit_from_inside_a_group(adam: bool) -> None:
    """It could not resume with plain SGD, and could not be saved inside a group of accumulated batches."""

    def go(length: trek.Length, **settings: Any) -> Result:
        options = {"workers": 2, "strategy": "fsdp", "accumulate": 3, "show_progress": False, **settings}
        hparams = {**HPARAMS, "adam": adam, "dropout": 0.3, "rows": 40}
        return trek.fit(WithoutState, hparams=hparams, max_length=length, **options)

    whole = go(trek.batches(12))
    part = go(trek.batches(8))
    assert part.checkpoint is not None
    assert part.checkpoint.batches == 8
    assert_close(go(trek.batches(12), resume=part.checkpoint), whole, tolerance=0.0)
    ddp = go(trek.batches(12), resume=part.checkpoint, strategy="ddp")
    assert_close(ddp, whole, tolerance=1e-9)


def test_a_group_that_was_begun_without_shards_is_finished_with_them() -> None:
    options: dict[str, Any] = {"accumulate": 4, "hparams": {"rows": 60}}
    part = fit(**{**options, "hparams": {"rows": 60, "stop_at": 6}})
    assert part.checkpoint is not None
    resumed = fit(workers=2, strategy="fsdp", resume=part.checkpoint, **options)
    assert_close(resumed, fit(**options), tolerance=1e-9)


def test_sparse_gradients_are_refused_with_a_remedy() -> None:
    """They used to fail deep inside torch, in the first backward pass."""

    class Embedded(PointsTrial):
        def build_model(self) -> torch.nn.Module:
            return torch.nn.Sequential(torch.nn.Embedding(5, 3, sparse=True))

    with pytest.raises(ConfigError, match=r"cannot shard '0.weight', whose gradient is sparse.*use strategy 'ddp'"):
        trek.fit(Embedded, hparams=HPARAMS, max_length=trek.batches(1), workers=2, strategy="fsdp", show_progress=False)
