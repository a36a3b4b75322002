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
    assert sharded.checkpoint.batches == 32
    assert_close(fit(workers=2, strategy="ddp", resume=sharded.checkpoint), whole, tolerance=1e-9)


def test_fsdp_alone_is_refused_with_a_remedy() -> None:
    with pytest.raises(ConfigError, match="at least 2 processes, got 1"):
        fit(strategy="fsdp")
