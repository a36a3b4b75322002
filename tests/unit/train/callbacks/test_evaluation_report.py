"""An evaluation report is kept with the run, over all records that were validated, each once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from torch import nn

import trek
from trek.errors import InputError
from trek.testing.trials import PointsTrial
from trek.train.callbacks.callback import Callback
from trek.train.callbacks.evaluation_report import EvaluationReport


class Reported(PointsTrial):
    """Reports on its validation data."""

    def __init__(self, context: trek.TrialContext) -> None:
        super().__init__(context)
        self.report = EvaluationReport(context, classes=["below", "above"])

    def build_callbacks(self) -> Mapping[str, Callback]:
        return {"report": self.report}

    def evaluate_batch(self, batch: Any, model: nn.Module) -> dict[str, Any]:
        self.report.update(labels=batch[1], scores=model(batch[0]))
        return super().evaluate_batch(batch, model)


def fit(trial: type[trek.Trial], **more: Any) -> Any:
    return trek.fit(
        trial,
        hparams={"global_batch_size": 16},
        max_length=trek.epochs(2),
        show_progress=False,
        name="reported",
        **more,
    )


def read(folder: Path) -> tuple[dict[str, Any], pd.DataFrame, pd.DataFrame]:
    return (
        json.loads((folder / "summary.json").read_text()),
        pd.read_csv(folder / "classes.csv"),
        pd.read_csv(folder / "confusion_matrix.csv"),
    )


def test_a_run_keeps_the_report_of_its_last_validation() -> None:
    result = fit(Reported)
    summary, classes, matrix = read(result.path / "artifacts" / "report")
    last = [row for row in result.metrics if row["group"] == "validation"][-1]
    assert summary["accuracy"] == pytest.approx(last["accuracy"])
    assert summary["records"] == matrix[["below", "above"]].to_numpy().sum() == classes["records"].iloc[-1]
    assert classes["class"].tolist() == ["below", "above", "mean"]
    for name in ("confusion_matrix", "curves", "calibration"):
        assert (result.path / "artifacts" / "report" / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_two_ranks_report_the_records_of_both_once() -> None:
    one, two = (read(fit(Reported, **more).path / "artifacts" / "report") for more in ({}, {"workers": 2}))
    assert one[0]["records"] == two[0]["records"]


class Doubted(Reported):
    """Scores that may be logits or probabilities."""

    kind: Any = None

    def __init__(self, context: trek.TrialContext) -> None:
        super().__init__(context)
        self.report = EvaluationReport(context, kind=self.kind)

    def evaluate_batch(self, batch: Any, model: nn.Module) -> dict[str, Any]:
        self.report.update(labels=batch[1], scores=0 * batch[1] + 0.25)
        return PointsTrial.evaluate_batch(self, batch, model)


@pytest.mark.parametrize(("kind", "predicted"), [("logits", "1"), ("probabilities", "0")])
def test_scores_are_what_kind_says(kind: str, predicted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Doubted, "kind", kind)
    summary, _, matrix = read(fit(Doubted).path / "artifacts" / "report")
    assert matrix[predicted].sum() == summary["records"]


def test_scores_of_no_kind_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"scores from 0\.25 to 0\.25 may be logits or probabilities"):
        fit(Doubted)
    monkeypatch.setattr(Doubted, "kind", "odds")
    with pytest.raises(InputError, match="kind must be one of logits, probabilities"):
        fit(Doubted)


class Forgetful(Reported):
    """Passes nothing on."""

    def evaluate_batch(self, batch: Any, model: nn.Module) -> dict[str, Any]:
        return PointsTrial.evaluate_batch(self, batch, model)


def test_a_report_without_records_is_an_error() -> None:
    with pytest.raises(InputError, match=r"has no records\. Call `update` in evaluate_batch"):
        fit(Forgetful)
