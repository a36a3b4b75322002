"""Metrics over ranks: whoever reduces them, two processes report what one does."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torchmetrics
from torch import nn

import trek
from trek.errors import TrainingError
from trek.testing.trials import PointsTrial, make_points
from trek.train.result import Result


class Measured(PointsTrial):
    """Averages, extremes, torchmetrics objects and reducers, in training and validation.

    31 rows in global batches of 6: the last has one row, so a second process stands in with a row that must not count.
    """

    def __init__(self, context: trek.TrialContext) -> None:
        super().__init__(context)
        self.f1 = torchmetrics.F1Score(task="binary")
        self.num_positive = torchmetrics.SumMetric()
        self.rows = context.wrap_reducer(sum, "num_rows")

    def build_validation_data_loader(self) -> Any:
        return trek.DataLoader(make_points(31, dtype=torch.float64), self.context.get_per_slot_batch_size())

    def train_batch(self, batch: Any, model: nn.Module, batch_idx: int) -> dict[str, Any]:
        self.rows.update(len(batch[0]))  # type: ignore[attr-defined]
        self.num_positive.update((batch[0] > 0).sum())
        return {**super().train_batch(batch, model, batch_idx), "num_positive": self.num_positive}

    def evaluate_batch(self, batch: Any, model: nn.Module) -> dict[str, Any]:
        points, labels = batch
        self.rows.update(len(points))  # type: ignore[attr-defined]
        self.f1.update(model(points).argmax(1), labels)
        return {
            **super().evaluate_batch(batch, model),
            "f1": self.f1,
            "largest": points.max(),
            "smallest": points.min(),
        }

    def evaluation_reducer(self) -> dict[str, str]:
        return {"largest": "max", "smallest": "min"}


class Adversaries(trek.Trial):
    """Two models and optimizers, evaluated on the whole set by the leader."""

    def __init__(self, context: trek.TrialContext) -> None:
        super().__init__(context)
        self.generator = context.wrap_model(nn.Linear(6, 6).double())
        self.judge = context.wrap_model(nn.Linear(6, 1).double())
        self.makes = context.wrap_optimizer(torch.optim.Adam(self.generator.parameters(), lr=0.01))
        self.judges = context.wrap_optimizer(torch.optim.SGD(self.judge.parameters(), lr=0.1))

    def build_training_data_loader(self) -> Any:
        points, _ = make_points(31, dtype=torch.float64)
        return trek.DataLoader((points,), self.context.get_per_slot_batch_size(), shuffle=True)

    def build_validation_data_loader(self) -> Any:
        return trek.DataLoader(make_points(21, dtype=torch.float64), 4)

    def train_batch(self, batch: Any) -> dict[str, Any]:
        (real,) = batch
        made = self.generator(real.flip(1))
        judged = F.softplus(self.judge(made.detach())).mean() + F.softplus(-self.judge(real)).mean()
        self.context.backward(judged)
        self.context.step_optimizer(self.judges)
        fooled = F.softplus(-self.judge(made)).mean()
        self.context.backward(fooled)
        self.context.step_optimizer(self.makes)
        self.judges.zero_grad()
        return {"judge": judged, "generator": fooled}

    def evaluate_full_dataset(self, data_loader: Any) -> dict[str, Any]:
        seen = torch.cat([self.judge(points) for points, _ in data_loader])
        return {"validation_loss": F.softplus(-seen).mean(), "num_rows": len(seen)}


def fit(trial: type[trek.Trial], *, workers: int) -> Result:
    hparams = {"global_batch_size": 6, "rows": 31, "double": True}
    return trek.fit(trial, hparams=hparams, max_length=trek.epochs(2), workers=workers, show_progress=False)


@pytest.mark.parametrize("trial", [Measured, Adversaries])
def test_two_processes_report_and_learn_what_one_does(trial: type[trek.Trial]) -> None:
    one, two = fit(trial, workers=1), fit(trial, workers=2)
    told = [[row for row in result.metrics if row["group"] != "system"] for result in (one, two)]
    assert len(told[0]) == 4
    for row, expected in zip(told[1], told[0], strict=True):
        assert row.pop("group") == expected.pop("group")
        assert row == pytest.approx(expected, rel=1e-9)
    for result in (one, two):
        assert result.checkpoint is not None
    for model in range(2 if trial is Adversaries else 1):
        expected = one.checkpoint.state_dict(model)  # type: ignore[union-attr]
        for name, weights in two.checkpoint.state_dict(model).items():  # type: ignore[union-attr]
            torch.testing.assert_close(weights, expected[name], rtol=1e-9, atol=1e-9)


GROUPS = ("training", "validation")


class OneDiverges(PointsTrial):
    """On rank 1, the loss is not a number from the fourth batch on."""

    def train_batch(self, batch: Any, model: nn.Module, batch_idx: int) -> dict[str, Any]:
        metrics = super().train_batch(batch, model, batch_idx)
        is_bad = self.context.distributed.get_rank() == 1 and batch_idx >= 3
        return {"loss": metrics["loss"] * (float("nan") if is_bad else 1.0)}


def test_the_rank_whose_loss_is_not_a_number_is_named() -> None:
    hparams = {"global_batch_size": 6, "rows": 60}
    with pytest.raises(TrainingError, match=r"the metric 'loss' is nan in batch 4 on rank 1, and on_nan is 'stop'"):
        trek.fit(OneDiverges, hparams=hparams, max_length=trek.epochs(1), workers=2, on_nan="stop", show_progress=False)


class Unlike(PointsTrial):
    """Every rank logs in its own order, and one metric more than the others."""

    def train_batch(self, batch: Any, model: nn.Module, batch_idx: int) -> dict[str, Any]:
        rank = self.context.distributed.get_rank()
        metrics = {**super().train_batch(batch, model, batch_idx), "ten": 10.0, "thousand": 1000.0}
        return {f"only_{rank}": float(rank), **dict(list(metrics.items())[:: 1 if rank else -1])}

    def evaluate_batch(self, batch: Any, model: nn.Module) -> dict[str, Any]:
        rank = self.context.distributed.get_rank()
        return {**({"sevens": 7.0} if rank else {}), **super().evaluate_batch(batch, model)}


def test_ranks_that_log_other_metrics_in_another_order_report_them_by_name() -> None:
    """They used to get each other's values, or to hang."""
    training, validation = ({row["group"]: row for row in fit(Unlike, workers=2).metrics}[g] for g in GROUPS)
    assert {name: training[name] for name in ("ten", "thousand", "only_0", "only_1")} == {
        "ten": 10.0,
        "thousand": 1000.0,
        "only_0": 0.0,
        "only_1": 1.0,
    }
    assert validation["sevens"] == 7.0
