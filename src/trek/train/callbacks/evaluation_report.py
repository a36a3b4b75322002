"""EvaluationReport: confusion matrix, per-class table, ROC, precision-recall and calibration of a classifier.

Kept as artifacts of the run after its validations, so that they are on the trial's page. The numbers are those of
`trek.train.metrics.classification`; pictures need matplotlib (the `report` extra).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from trek.errors import ConfigError, InputError
from trek.train.callbacks.callback import Callback
from trek.train.metrics import classification
from trek.train.metrics.classification import Predictions
from trek.train.trial import TrialContext

FOLDER = "report"
_MAX_CURVES = 10
_MAX_CELLS = 30


class EvaluationReport(Callback):
    """Add it to `build_callbacks`, and pass labels and scores to `update` in `evaluate_batch`.

        def __init__(self, context):
            self.report = EvaluationReport(context, classes=["cat", "dog"])

        def build_callbacks(self):
            return {"report": self.report}

        def evaluate_batch(self, batch, model):
            scores = model(batch["image"])
            self.report.update(labels=batch["label"], scores=scores)

    `scores` are logits or probabilities by class, or one score per record for two classes. What all ranks saw is
    gathered; a report replaces the one of the validation before.
    """

    def __init__(self, context: TrialContext, *, classes: Sequence[str] | None = None, folder: str = FOLDER) -> None:
        if classes is not None and (isinstance(classes, str) or len(classes) < 2):
            raise ConfigError(f"classes must be a list of at least 2 names, got {classes!r}.")
        self._context = context
        self._classes = None if classes is None else [str(one) for one in classes]
        self._folder = folder
        self._seen: list[tuple[list[int], list[Any]]] = []

    def update(self, *, labels: Any, scores: Any) -> None:
        """Add the records of one validation batch. A batch that only fills up a rank does not count."""
        if self._context.traveler.is_counted:
            self._seen.append((_listed(labels), _listed(scores)))

    def on_validation_start(self) -> None:
        """Begin anew."""
        self._seen = []

    def on_validation_end(self, metrics: dict[str, float]) -> None:
        """Gather what all ranks saw; the leader keeps the report."""
        gathered = self._context.traveler.strategy.gather(self._seen)
        self._seen = []
        if not self._context.traveler.world.is_leader:
            return
        labels = [one for seen in gathered for own, _ in seen for one in own]
        scores = [one for seen in gathered for _, own in seen for one in own]
        if not labels:
            raise InputError("the evaluation report has no records. Call `update` in evaluate_batch.")
        predictions = Predictions.of(labels, scores)
        for name, value in report_artifacts(predictions, classes=self._classes).items():
            self._context.log_artifact(value, f"{self._folder}/{name}")


def report_artifacts(predictions: Predictions, *, classes: Sequence[str] | None = None) -> dict[str, Any]:
    """The report's files by name, as `log_artifact` takes them."""
    import pandas as pd

    names = list(classes) if classes is not None else [str(one) for one in range(predictions.num_classes)]
    if len(names) != predictions.num_classes:
        raise InputError(f"there are {len(names)} names of classes, but {predictions.num_classes} scores per record.")
    matrix = classification.confusion_matrix(predictions)
    fit = classification.calibration(predictions)
    summary = {
        "records": len(predictions.labels),
        "accuracy": classification.accuracy(predictions),
        "calibration_error": fit.error,
    }
    return {
        "summary.json": json.dumps(summary).encode(),
        "classes.csv": pd.DataFrame(classification.class_table(predictions, names)),
        "confusion_matrix.csv": pd.DataFrame(matrix, columns=names).assign(true=names)[["true", *names]],
        "confusion_matrix.png": _confusion_figure(matrix, names),
        "curves.png": _curves_figure(predictions, names),
        "calibration.png": _calibration_figure(fit),
    }


def _figure(columns: int) -> tuple[Any, Any]:
    """A figure of its own, not one of pyplot, which keeps all that were ever made."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError(
            "an evaluation report needs the package matplotlib. Run `pip install 'trek[report]'`."
        ) from error
    figure = Figure(figsize=(5 * columns, 4.5), dpi=100, layout="constrained")
    return figure, figure.subplots(1, columns)


def _confusion_figure(matrix: Any, names: Sequence[str]) -> Any:
    figure, axes = _figure(1)
    shares = matrix / np.maximum(matrix.sum(1, keepdims=True), 1)
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    if len(names) <= _MAX_CELLS:
        axes.set_xticks(range(len(names)), names, rotation=90 if max(map(len, names)) > 3 else 0)
        axes.set_yticks(range(len(names)), names)
        for row, column in np.ndindex(matrix.shape):
            color = "white" if shares[row, column] > 0.5 else "black"
            axes.text(column, row, str(matrix[row, column]), ha="center", va="center", color=color, fontsize=8)
    axes.set(xlabel="predicted", ylabel="true", title="Confusion matrix")
    return figure


def _curves_figure(predictions: Predictions, names: Sequence[str]) -> Any:
    figure, (roc, recall) = _figure(2)
    shown = [1] if len(names) == 2 else range(min(len(names), _MAX_CURVES))
    for index in shown:
        is_class, score = predictions.labels == index, predictions.probabilities[:, index]
        if not is_class.any() or is_class.all():
            continue
        roc.plot(*classification.roc_curve(is_class, score), label=names[index])
        precision, found = classification.precision_recall_curve(is_class, score)
        recall.plot(found, precision, label=names[index])
    roc.plot([0, 1], [0, 1], color="grey", linestyle=":")
    roc.set(xlabel="false positive rate", ylabel="true positive rate", title="ROC")
    recall.set(xlabel="recall", ylabel="precision", title="Precision and recall", ylim=(0, 1.05))
    roc.legend(fontsize=8)
    return figure


def _calibration_figure(fit: classification.Calibration) -> Any:
    figure, axes = _figure(1)
    axes.plot([0, 1], [0, 1], color="grey", linestyle=":")
    axes.plot(fit.confidence, fit.accuracy, marker="o")
    axes.set(xlabel="confidence", ylabel="accuracy", xlim=(0, 1), ylim=(0, 1))
    axes.set_title(f"Calibration, error {fit.error:.3f}")
    return figure


def _listed(values: Any) -> list[Any]:
    return list(values.detach().float().cpu().tolist() if hasattr(values, "detach") else np.asarray(values).tolist())
