"""Metrics are reduced by sample, however they are given and whoever reduces them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import torchmetrics
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import trek
from trek.errors import InputError
from trek.strategies.solo import Solo
from trek.testing.trials import PointsTrial, make_points
from trek.train.metrics.metric_sums import MetricSums
from trek.train.metrics.reducers import Reducer
from trek.train.result import Result
from trek.world import World

SOLO = Solo(World())
numbers = st.floats(-100, 100, width=32)


def sums_of(values: list[tuple[Any, int]]) -> MetricSums:
    sums = MetricSums()
    for value, samples in values:
        sums.add({"m": value}, num_samples=samples)
    return sums


def fit(trial: type[trek.Trial], **settings: Any) -> Result:
    hparams = {"global_batch_size": 16, "rows": 40, **settings.pop("hparams", {})}
    options = {"max_length": trek.epochs(1), "show_progress": False, **settings}
    return trek.fit(trial, hparams=hparams, **options)


def rows(result: Result, group: str) -> list[dict[str, Any]]:
    return [row for row in result.metrics if row["group"] == group]


def predictions(result: Result, num_rows: int = 50) -> tuple[torch.Tensor, torch.Tensor]:
    """What the run's last weights say of the validation rows, and the truth."""
    assert result.checkpoint is not None
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.0), nn.Linear(8, 2))
    model.load_state_dict(result.checkpoint.state_dict())
    points, labels = make_points(num_rows)
    with torch.no_grad():
        return model(points), labels


@given(st.lists(st.tuples(numbers, st.integers(1, 9)), min_size=1, max_size=6))
def test_an_average_is_by_sample(values: list[tuple[float, int]]) -> None:
    expected = sum(value * samples for value, samples in values) / sum(samples for _, samples in values)
    as_tensors = [(torch.tensor(value, dtype=torch.float64), samples) for value, samples in values]
    assert sums_of(list(values)).reduce(SOLO)["m"] == pytest.approx(expected)
    assert sums_of(as_tensors).reduce(SOLO)["m"] == pytest.approx(expected)


@given(st.lists(st.tuples(numbers, st.integers(0, 9)), min_size=1, max_size=6).filter(lambda v: any(n for _, n in v)))
def test_sums_and_extremes_are_over_what_counts(values: list[tuple[float, int]]) -> None:
    counted = [value for value, samples in values if samples]
    for how, reduce in {"sum": math.fsum, "max": max, "min": min}.items():
        result = sums_of(list(values)).reduce(SOLO, how={"m": how})  # type: ignore[dict-item]
        assert result["m"] == pytest.approx(reduce(counted))


@pytest.mark.parametrize("how", ["avg", "sum", "max", "min"])
def test_a_stand_ins_value_counts_nothing_even_if_it_is_nan(how: Any) -> None:
    assert sums_of([(2.0, 4), (math.nan, 0), (torch.tensor(math.inf), 0)]).reduce(SOLO, how={"m": how})["m"] == 2.0


def test_the_nan_of_a_batch_that_counts_is_not_hidden() -> None:
    assert math.isnan(sums_of([(2.0, 4), (math.nan, 1)]).reduce(SOLO)["m"])


def test_what_was_added_is_kept_and_restored_as_it_was() -> None:
    first, second = sums_of([(0.1, 3)]), sums_of([(torch.tensor(0.7), 1)])
    merged = MetricSums()
    merged.load_state_dicts([first.state_dict(), second.state_dict()])
    assert merged.reduce(SOLO)["m"] == pytest.approx((0.3 + float(torch.tensor(0.7))) / 4)
    assert not merged


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("high", "'m' must be a number, got str 'high'"),
        ("1.5", "'m' must be a number, got str '1.5'"),
        (None, "'m' must be a number, got None"),
        (1j, "'m' must be a real number, got complex"),
        (torch.tensor(1j), "'m' must be a real number, got Tensor"),
        (np.complex64(1j), "'m' must be a real number, got complex64"),
        (object(), "'m' must be a number, got object"),
    ],
)
def test_a_metric_that_is_no_number_is_named(value: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        sums_of([(value, 1)])


class Reduced(PointsTrial):
    """Validation metrics reduced as the hyperparameter `reducer` says."""

    def evaluation_reducer(self) -> Any:
        return self.context.get_hparam("reducer")

    def evaluate_batch(self, batch: Any, model: nn.Module) -> dict[str, Any]:
        return {"largest": batch[0].max(), "rows": float(len(batch[0]))}


def test_a_trial_chooses_a_reduction_for_all_metrics_or_by_name() -> None:
    points, _ = make_points(50)
    batches = points.split(16)
    (row,) = rows(fit(Reduced, hparams={"reducer": {"largest": "max", "rows": "sum"}}), "validation")
    assert row["largest"] == points.max().item()
    assert row["rows"] == 50
    (row,) = rows(fit(Reduced, hparams={"reducer": "min"}), "validation")
    assert row["largest"] == min(batch.max().item() for batch in batches)
    assert row["rows"] == 2


def test_a_reduction_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InputError, match=r"unknown reduction 'median'\. Use one of: avg, sum, max, min"):
        fit(Reduced, hparams={"reducer": "median"})


class Measured(PointsTrial):
    """torchmetrics objects in training and validation."""

    def __init__(self, context: trek.TrialContext) -> None:
        super().__init__(context)
        self.train_f1 = torchmetrics.F1Score(task="binary")
        self.valid_f1 = torchmetrics.F1Score(task="binary")

    def train_batch(self, batch: Any, model: nn.Module, batch_idx: int) -> dict[str, Any]:
        points, labels = batch
        out = model(points)
        self.train_f1.update(out.argmax(1), labels)
        return {"loss": F.cross_entropy(out, labels), "f1": self.train_f1}

    def evaluate_batch(self, batch: Any, model: nn.Module) -> dict[str, Any]:
        points, labels = batch
        self.valid_f1.update(model(points).argmax(1), labels)
        return {"f1": self.valid_f1}


def test_torchmetrics_objects_are_computed_over_all_batches_and_begin_anew() -> None:
    result = fit(Measured, max_length=trek.epochs(2))
    out, labels = predictions(result)
    expected = torchmetrics.functional.f1_score(out.argmax(1), labels, task="binary").item()
    validations = rows(result, "validation")
    assert len(validations) == 2
    assert validations[-1]["f1"] == pytest.approx(expected)
    assert all(0 <= row["f1"] <= 1 for row in rows(result, "training"))


class Spread(Reducer):
    """The difference of the largest and smallest value on any rank."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def reset(self) -> None:
        self.seen = []

    def per_slot_reduce(self) -> tuple[float, float]:
        return min(self.seen), max(self.seen)

    def cross_slot_reduce(self, per_slot_metrics: list[Any]) -> dict[str, float]:
        return {"spread": max(high for _, high in per_slot_metrics) - min(low for low, _ in per_slot_metrics)}


class Collecting(PointsTrial):
    """A torchmetrics object and a reducer that a stop may find half way to their next report."""

    def __init__(self, context: trek.TrialContext) -> None:
        super().__init__(context)
        self.total = torchmetrics.SumMetric()
        self.count = context.wrap_reducer(sum, "num_rows", for_validation=False)

    def train_batch(self, batch: Any, model: nn.Module, batch_idx: int) -> dict[str, Any]:
        self.count.update(len(batch[0]))  # type: ignore[attr-defined]
        self.total.update(batch[0].sum())
        return {**super().train_batch(batch, model, batch_idx), "total": self.total}


def test_what_metrics_have_collected_survives_a_stop() -> None:
    whole = rows(fit(Collecting, max_length=trek.epochs(2)), "training")
    fit(Collecting, hparams={"stop_at": 5}, max_length=trek.epochs(2), name="part")
    resumed = rows(fit(Collecting, max_length=trek.epochs(2), name="part", resume="latest"), "training")
    assert [(r["num_rows"], r["total"]) for r in resumed[-1:]] == [(r["num_rows"], r["total"]) for r in whole[-1:]]


class WithReducers(PointsTrial):
    """One reducer of training, one of validation, as an object and as a function."""

    def __init__(self, context: trek.TrialContext) -> None:
        super().__init__(context)
        self.spread = context.wrap_reducer(Spread(), for_validation=False)
        self.count = context.wrap_reducer(sum, "num_rows", for_training=False)

    def train_batch(self, batch: Any, model: nn.Module, batch_idx: int) -> dict[str, Any]:
        self.spread.seen.append(float(batch_idx))  # type: ignore[attr-defined]
        return super().train_batch(batch, model, batch_idx)

    def evaluate_batch(self, batch: Any, model: nn.Module) -> None:
        self.count.update(len(batch[0]))  # type: ignore[attr-defined]


def test_custom_reducers_count_in_every_training_report_and_in_validations() -> None:
    """Three batches an epoch: reports after batches 2, 3 (the epoch's end), 4 and 6."""
    result = fit(WithReducers, max_length=trek.epochs(2), report_period=2, metric="num_rows")
    assert [(row["batches"], row["spread"]) for row in rows(result, "training")] == [(2, 1), (3, 0), (4, 0), (6, 1)]
    assert [row["num_rows"] for row in rows(result, "validation")] == [50, 50]
    assert "num_rows" not in rows(result, "training")[0]
    assert "spread" not in rows(result, "validation")[0]


def test_a_reducer_without_a_name_must_return_a_dict() -> None:
    class Nameless(WithReducers):
        def __init__(self, context: trek.TrialContext) -> None:
            PointsTrial.__init__(self, context)
            self.spread = context.wrap_reducer(Spread())
            self.count = context.wrap_reducer(sum)

    with pytest.raises(InputError, match="a reducer without a name must return a dict of metrics, got int"):
        fit(Nameless)


class WholeSet(PointsTrial):
    """Evaluates everything at once, reading the data twice."""

    evaluate_batch = None

    def evaluate_full_dataset(self, data_loader: Any, model: nn.Module) -> dict[str, Any]:
        assert not model.training
        assert not torch.is_grad_enabled()
        assert len(data_loader) == 4
        right = sum((model(points).argmax(1) == labels).sum() for points, labels in data_loader)
        return {"accuracy": right / sum(len(labels) for _, labels in data_loader)}


def test_a_trial_may_evaluate_the_whole_data_set_itself() -> None:
    result = fit(WholeSet)
    out, labels = predictions(result)
    assert rows(result, "validation")[0]["accuracy"] == pytest.approx((out.argmax(1) == labels).float().mean().item())


@pytest.mark.parametrize("method", ["evaluate_batch", "evaluate_full_dataset"])
def test_an_evaluation_that_returns_no_dict_is_named(method: str) -> None:
    trial = type("Bare", (PointsTrial,), {method: lambda self, *, model, **_: torch.zeros(3)})
    with pytest.raises(InputError, match=f"{method} must return a dict of metrics by name, got Tensor"):
        fit(trial)
