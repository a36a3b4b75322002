"""ClassificationReport: what is known of a classifier from its labels and scores, as tables, pictures and files.

The numbers are those of `trek.train.metrics.classification`; pictures need matplotlib (the `report` extra).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from trek.distribution import package_missing
from trek.errors import InputError
from trek.train.metrics import classification
from trek.train.metrics.classification import Array, Predictions, ScoreKind

if TYPE_CHECKING:
    import pandas as pd

_MAX_CURVES = 10
_MAX_CELLS = 30


class ClassificationReport:
    """Made of the true class of each record, and its scores: logits or probabilities by class, as `kind` says.

    One score per record is that of the second of two classes. Without a `kind`, scores below 0 or above 1 are logits,
    and others are refused, since they may be either. `classes` are the names of the classes, by default their numbers.
    """

    def __init__(
        self, labels: Any, scores: Any, *, kind: ScoreKind | None = None, classes: Sequence[str] | None = None
    ) -> None:
        self.predictions = Predictions.of(labels, scores, kind=kind)
        """Labels, and probabilities by class."""
        num = self.predictions.num_classes
        self.classes = [str(one) for one in (classes if classes is not None else range(num))]
        if len(self.classes) != num:
            raise InputError(f"there are {len(self.classes)} names of classes, but {num} scores per record.")

    @classmethod
    def from_classes(cls, labels: Any, predicted: Any, *, classes: Sequence[str]) -> Self:
        """Where only the predicted class of each record is known; areas and calibration then say little."""
        chosen = classification.class_numbers(
            "predicted classes", classification.as_array(predicted), num_classes=len(classes)
        )
        return cls(labels, np.eye(len(classes))[chosen], kind="probabilities", classes=classes)

    @property
    def accuracy(self) -> float:
        """The share of records whose class is predicted."""
        return classification.accuracy(self.predictions)

    @cached_property
    def matrix(self) -> Array:
        """Records by true class (rows) and predicted class (columns)."""
        return classification.confusion_matrix(self.predictions)

    @cached_property
    def table(self) -> pd.DataFrame:
        """Precision, recall, F1, records and areas of each class, then their means."""
        import pandas as pd

        return pd.DataFrame(classification.class_table(self.predictions, self.classes))

    @staticmethod
    def draw_matrix(matrix: Array, classes: Sequence[str], *, colors: Any = "Blues") -> Any:
        """A matplotlib figure of a confusion matrix: what it holds in the cells, the share of the row as their color.

        `colors` is a colormap that becomes darker.
        """
        figure, axes = _figure(1)
        shares = matrix / np.maximum(matrix.sum(1, keepdims=True), np.finfo(float).tiny)
        axes.imshow(shares, cmap=colors, vmin=0, vmax=1)
        form = "d" if np.issubdtype(matrix.dtype, np.integer) else ".3g"
        if len(classes) <= _MAX_CELLS:
            axes.set_xticks(range(len(classes)), classes, rotation=90 if max(map(len, classes)) > 3 else 0)
            axes.set_yticks(range(len(classes)), classes)
            for row, column in np.ndindex(matrix.shape):
                style = {"ha": "center", "va": "center", "fontsize": 8}
                color = "white" if shares[row, column] > 0.5 else "black"
                axes.text(column, row, f"{matrix[row, column]:{form}}", color=color, **style)
        axes.set(xlabel="predicted", ylabel="true", title="Confusion matrix")
        return figure

    def artifacts(self) -> dict[str, Any]:
        """Files by name, as `log_artifact` takes them."""
        import pandas as pd

        fit = classification.calibration(self.predictions)
        summary = {
            "records": len(self.predictions.labels),
            "accuracy": self.accuracy,
            "calibration_error": fit.error,
        }
        matrix = pd.DataFrame(self.matrix, columns=self.classes)
        matrix.insert(0, "true", self.classes, allow_duplicates=True)
        return {
            "summary.json": json.dumps(summary).encode(),
            "classes.csv": self.table,
            "confusion_matrix.csv": matrix,
            "confusion_matrix.png": self.draw_matrix(self.matrix, self.classes),
            "curves.png": _curves_figure(self.predictions, self.classes),
            "calibration.png": _calibration_figure(fit),
        }


def _figure(columns: int) -> tuple[Any, Any]:
    """A figure of its own, not one of pyplot, which keeps all that were ever made."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise package_missing("an evaluation report", "matplotlib", extra="report") from error
    figure = Figure(figsize=(5 * columns, 4.5), dpi=100, layout="constrained")
    return figure, figure.subplots(1, columns)


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
