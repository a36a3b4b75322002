"""Experiment as a Python object: its table of metrics."""

from __future__ import annotations

from typing import Any

from trek.client.models import MetricPoint, TrialRecord
from trek.experiments.experiment import Experiment


class OneTrial:
    """The client's part that an Experiment's table needs."""

    def __init__(self, trial: TrialRecord, points: list[MetricPoint]) -> None:
        self.trials = [trial]
        self._points = points

    def experiment(self, experiment_id: int) -> Any:
        self.id = experiment_id
        return self

    def trial_metrics(self, trial_id: int, *, group: str | None) -> list[MetricPoint]:
        return [point for point in self._points if group in (None, point.group)]


def test_nested_hyperparameters_and_a_metric_called_batches_have_columns_of_their_own() -> None:
    """A metric `batches` used to overwrite the column, and nested hyperparameters were one column of mappings."""
    hparams = {"optimizer": {"kind": "sgd", "lr": {"base": 0.1}}, "depth": 3}
    fields: dict[str, Any] = {"state": "completed", "length": {"batches": 9}, "progress": 1.0, "batches": 9}
    trial = TrialRecord(id=4, experiment_id=1, key=0, hparams=hparams, seed=0, created_s=0, **fields)
    point = MetricPoint(group="validation", batches=9, epoch=1.0, time_s=2.0, metrics={"batches": 0.5, "loss": 0.25})
    frame = Experiment.get(1, client=OneTrial(trial, [point])).to_pandas()  # type: ignore[arg-type]
    assert frame.to_dict("records") == [
        {
            "trial": 4,
            "group": "validation",
            "batches": 9,
            "epoch": 1.0,
            "time_s": 2.0,
            "metrics.batches": 0.5,
            "loss": 0.25,
            "hparams.optimizer.kind": "sgd",
            "hparams.optimizer.lr.base": 0.1,
            "hparams.depth": 3,
        }
    ]
