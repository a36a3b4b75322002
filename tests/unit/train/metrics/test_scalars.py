"""Metrics that are not one number: left out with one warning, or refused, wherever they come from."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
import torch
import torchmetrics
from torch import nn

import trek
from trek.errors import InputError
from trek.testing.trials import PointsTrial
from trek.train.metrics.scalars import Scalars
from trek.train.result import Result


def fit(trial: type[trek.Trial]) -> Result:
    hparams = {"global_batch_size": 8, "rows": 16}
    return trek.fit(trial, hparams=hparams, max_length=trek.epochs(3), show_progress=False)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


@pytest.mark.parametrize("value", [2, 2.0, np.float32(2), np.array([2]), torch.tensor([[2.0]]), torch.tensor(2)])
def test_one_number_is_one_in_whatever_it_comes(value: Any) -> None:
    assert Scalars().number("m", value) == 2.0


@pytest.mark.parametrize("value", [torch.zeros(2), torch.zeros(0), np.zeros((2, 3)), [1.0], (1,), {"a": 1}, set()])
def test_several_numbers_are_left_out_and_that_is_said_once(value: Any, caplog: pytest.LogCaptureFixture) -> None:
    scalars = Scalars()
    assert scalars.of({"m": value, "n": 1}) == scalars.of({"m": value, "n": 1}) == {"n": 1.0}
    (said,) = warnings(caplog)
    assert said.startswith("metric 'm' is not reported: it must be one number, got a ")


class Predicts(PointsTrial):
    def train_batch(self, batch: Any, model: nn.Module, batch_idx: int) -> dict[str, Any]:
        return {**super().train_batch(batch, model, batch_idx), "weights": model(batch[0])}

    def evaluate_batch(self, batch: Any, model: nn.Module) -> dict[str, Any]:
        return {**super().evaluate_batch(batch, model), "predictions": model(batch[0]), "names": ["a", "b"]}


class PredictsAll(PointsTrial):
    evaluate_batch: Any = None

    def evaluate_full_dataset(self, data_loader: Any, model: nn.Module) -> dict[str, Any]:
        return {"predictions": [model(points) for points, _ in data_loader], "num": 3}


class Reduces(PointsTrial):
    def __init__(self, context: trek.TrialContext) -> None:
        super().__init__(context)
        self.confusion = context.wrap_reducer(lambda values: np.zeros((2, 2)), "confusion", for_training=False)


@pytest.mark.parametrize(
    ("trial", "left_out"),
    [(Predicts, ["weights", "predictions", "names"]), (PredictsAll, ["predictions"]), (Reduces, ["confusion"])],
)
def test_a_trial_may_return_more_than_numbers(
    trial: type[trek.Trial], left_out: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """A tensor of several numbers ended the run, in evaluate_full_dataset with an error from inside."""
    result = fit(trial)
    assert [said.split("'")[1] for said in warnings(caplog)] == left_out
    assert not any(name in row for row in result.metrics for name in left_out)


class Texts(PointsTrial):
    evaluate_batch: Any = None

    def evaluate_full_dataset(self, data_loader: Any) -> dict[str, Any]:
        return {"grade": "good"}


class ReducesToText(PointsTrial):
    def __init__(self, context: trek.TrialContext) -> None:
        super().__init__(context)
        context.wrap_reducer(lambda values: "good", "grade")


@pytest.mark.parametrize("trial", [Texts, ReducesToText])
def test_what_is_no_number_is_refused_in_a_sentence(trial: type[trek.Trial]) -> None:
    """float() raised an error of its own, from inside."""
    with pytest.raises(InputError, match="metric 'grade' must be a number, got str 'good'"):
        fit(trial)


class Collected(PointsTrial):
    """Several torchmetrics objects at once, one of them with a number for each class."""

    def __init__(self, context: trek.TrialContext) -> None:
        super().__init__(context)
        options: dict[str, Any] = {"task": "multiclass", "num_classes": 2}
        self.measured = torchmetrics.MetricCollection(
            {
                "acc": torchmetrics.Accuracy(**options, average="micro"),
                "f1": torchmetrics.F1Score(**options, average="macro"),
                "recalls": torchmetrics.Recall(**options, average=None),
            },
            prefix="val_",
        )

    def evaluate_batch(self, batch: Any, model: nn.Module) -> Any:
        self.measured.update(model(batch[0]), batch[1])
        return {**super().evaluate_batch(batch, model), "measured": self.measured}


class OnlyCollected(Collected):
    def evaluate_batch(self, batch: Any, model: nn.Module) -> Any:
        return super().evaluate_batch(batch, model)["measured"]


@pytest.mark.parametrize("trial", [Collected, OnlyCollected])
def test_a_metric_collection_reports_each_of_its_metrics(
    trial: type[trek.Trial], caplog: pytest.LogCaptureFixture
) -> None:
    """Its result is a dict, which float() does not take."""
    rows = [row for row in fit(trial).metrics if row["group"] == "validation"]
    plain = [row for row in fit(PointsTrial).metrics if row["group"] == "validation"]
    assert [row["val_acc"] for row in rows] == pytest.approx([row["accuracy"] for row in plain])
    assert all(0 < row["val_f1"] <= 1 and "val_recalls" not in row for row in rows)
    assert len(warnings(caplog)) == 1


class Twice(Collected):
    def evaluate_batch(self, batch: Any, model: nn.Module) -> Any:
        return {**super().evaluate_batch(batch, model), "val_acc": 1.0}


def test_two_metrics_of_one_name_are_refused() -> None:
    with pytest.raises(InputError, match="metric 'val_acc' is given twice"):
        fit(Twice)
