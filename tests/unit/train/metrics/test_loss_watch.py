"""A loss that is not a number is told once, with its batch, or ends the run."""

from __future__ import annotations

import logging
import math
from typing import Any

import pytest
import torch
from torch import nn

import trek
from trek.errors import TrainingError
from trek.testing.trials import PointsTrial

BAD = 6


class Diverging(PointsTrial):
    """Its loss is not a number from some batch on."""

    value = math.nan

    def train_batch(self, batch: Any, model: nn.Module, batch_idx: int) -> dict[str, Any]:
        metrics = super().train_batch(batch, model, batch_idx)
        metrics["loss"] = metrics["loss"] * (self.value if batch_idx + 1 >= BAD else 1.0)
        return metrics


class Endless(Diverging):
    value = math.inf


class Measured(PointsTrial):
    """Another metric is not a number now and then."""

    def train_batch(self, batch: Any, model: nn.Module, batch_idx: int) -> dict[str, Any]:
        return {**super().train_batch(batch, model, batch_idx), "grad_norm": math.nan}


def fit(trial: type[trek.Trial] = Diverging, **settings: Any) -> None:
    hparams = {"global_batch_size": 8, "rows": 32, **settings.pop("hparams", {})}
    options = {"max_length": trek.epochs(3), "name": "run", "show_progress": False, **settings}
    trek.fit(trial, hparams=hparams, **options)


@pytest.mark.parametrize("trial", [Diverging, Endless])
@pytest.mark.parametrize("report_period", [1, 4, 5, 100])
def test_a_loss_that_is_not_a_number_is_told_once_with_its_batch(
    trial: type[trek.Trial], report_period: int, caplog: pytest.LogCaptureFixture
) -> None:
    """It was never mentioned."""
    fit(trial, report_period=report_period)
    (record,) = [one for one in caplog.records if one.name.endswith("loss_watch")]
    value = "nan" if trial is Diverging else "inf"
    assert f"the metric 'loss' is {value} in batch {BAD} on rank 0; training goes on." in record.getMessage()
    assert record.levelno == logging.WARNING


def test_a_run_may_end_instead(tmp_path: Any) -> None:
    with pytest.raises(TrainingError, match=f"is nan in batch {BAD} on rank 0, and on_nan is 'stop'") as caught:
        fit(on_nan="stop", report_period=2, max_length=trek.epochs(50))
    assert caught.value.exit_code == 1


def test_the_batch_is_right_after_a_resume(caplog: pytest.LogCaptureFixture) -> None:
    fit(hparams={"stop_at": 5})
    fit(resume="latest")
    assert f"in batch {BAD} on rank 0" in caplog.text


def test_other_metrics_may_be_anything(caplog: pytest.LogCaptureFixture) -> None:
    fit(Measured, on_nan="stop")
    assert not caplog.records


def test_a_loop_is_watched_too_and_a_batch_that_is_not_known_is_not_invented(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with trek.Traveler(world=trek.World(device_name="cpu"), show_progress=False) as tr:
        for (index,) in tr.train([torch.tensor([i]) for i in range(8)]):
            if index % 2:
                tr.log(judge_loss=math.nan if index > 3 else 1.0)
    assert "the metric 'judge_loss' is nan since the last report on rank 0" in caplog.text
