"""Figures of a classifier from its scores: confusion matrix, per-class table, ROC and precision-recall, calibration.

Pure: arrays in, arrays and numbers out. Files and pictures are made in `classification_report`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from trek.errors import InputError

Array = np.ndarray[Any, Any]
ScoreKind = Literal["logits", "probabilities"]
_SUM_TOLERANCE = 0.02
"""How far the probabilities of a record may be from 1 in sum: rounded to bfloat16, they are within 0.01."""


@dataclass(frozen=True)
class Predictions:
    """The true class of each record, and the probability of each class."""

    labels: Array
    probabilities: Array

    @classmethod
    def of(cls, labels: Any, scores: Any, *, kind: ScoreKind | None = None) -> Predictions:
        """From labels and scores: logits or probabilities by class, or one score per record for two classes.

        Without a `kind`, scores below 0 or above 1 are logits, and others are refused.
        """
        check_kind(kind)
        labels, scores = as_array(labels), as_array(scores).astype(np.float64)
        if scores.ndim == 2 and scores.shape[1] == 1:
            scores = scores[:, 0]
        if labels.ndim != 1 or scores.ndim not in (1, 2) or len(labels) != len(scores):
            raise InputError(
                f"a report needs one label and one row of scores per record, got shapes {labels.shape} and "
                f"{scores.shape}."
            )
        if not len(scores):
            raise InputError("a report needs at least one record, got none.")
        probabilities = _probabilities(scores, kind=kind or _kind_of(scores))
        return cls(class_numbers("labels", labels, num_classes=probabilities.shape[1]), probabilities)

    @property
    def num_classes(self) -> int:
        """How many classes there are scores for."""
        return int(self.probabilities.shape[1])

    @property
    def predicted(self) -> Array:
        """The most probable class of each record."""
        return np.asarray(self.probabilities.argmax(1))


def as_array(values: Any) -> Array:
    """Values as NumPy, tensors of torch too: of any device and type, with or without gradients."""
    if not hasattr(values, "detach"):
        return np.asarray(values)
    tensor = values.detach().cpu()
    return np.asarray(tensor.double() if tensor.is_floating_point() else tensor)


def check_kind(kind: ScoreKind | None) -> None:
    """Refuse a kind of scores that does not exist."""
    if kind is not None and kind not in get_args(ScoreKind):
        raise InputError(f"kind must be one of {', '.join(get_args(ScoreKind))}, got {kind!r}.")


def _kind_of(scores: Array) -> ScoreKind:
    if scores.min() < 0 or scores.max() > 1:
        return "logits"
    raise InputError(
        f"scores from {scores.min():g} to {scores.max():g} may be logits or probabilities. Set kind to 'logits' or "
        "'probabilities' (--kind)."
    )


def _probabilities(scores: Array, *, kind: ScoreKind) -> Array:
    """By class, of one score per record too."""
    if np.isnan(scores).any() or np.isposinf(scores).any():
        raise InputError("scores must be finite, got nan or inf. The model may have diverged.")
    if kind == "logits":
        return _softmax(scores if scores.ndim == 2 else np.stack([np.zeros_like(scores), scores], 1))
    if scores.min() < 0 or scores.max() > 1:
        raise InputError(
            f"probabilities must be from 0 to 1, got {scores.min():g} to {scores.max():g}. Set kind to 'logits' "
            "(--kind)."
        )
    if scores.ndim == 1:
        return np.stack([1 - scores, scores], 1)
    sums = scores.sum(1)
    if not np.allclose(sums, 1, atol=_SUM_TOLERANCE):
        furthest = sums[np.abs(sums - 1).argmax()]
        raise InputError(f"the probabilities of a record must add up to 1, got {furthest:g}. See kind (--kind).")
    return scores


def _softmax(scores: Array) -> Array:
    powers = np.exp(scores - scores.max(1, keepdims=True))
    return np.asarray(powers / powers.sum(1, keepdims=True))


def class_numbers(what: str, values: Array, *, num_classes: int) -> Array:
    """The values as numbers of classes; `what` names them in an error."""
    is_class = np.isin(values, np.arange(num_classes))
    if not is_class.all():
        raise InputError(
            f"{what} must be whole numbers from 0 to {num_classes - 1}, the last of {num_classes} classes, got "
            f"{values[~is_class][0]}. Leave out records without a class."
        )
    return values.astype(np.int64)


def confusion_matrix(predictions: Predictions) -> Array:
    """Records by true class (rows) and predicted class (columns)."""
    num = predictions.num_classes
    cells = predictions.labels * num + predictions.predicted
    return np.bincount(cells, minlength=num * num).reshape(num, num)


def class_table(predictions: Predictions, names: list[str]) -> list[dict[str, Any]]:
    """Precision, recall, F1, records, ROC and precision-recall areas of each class, then their means."""
    matrix = confusion_matrix(predictions)
    hits, found, true = np.diag(matrix), matrix.sum(0), matrix.sum(1)
    precision, recall = _ratio(hits, found), _ratio(hits, true)
    f1 = _ratio(2 * hits, found + true)
    rows: list[dict[str, Any]] = []
    for index, name in enumerate(names):
        is_class, score = predictions.labels == index, predictions.probabilities[:, index]
        areas = {"roc_auc": roc_area(is_class, score), "average_precision": average_precision(is_class, score)}
        own = {"precision": precision[index], "recall": recall[index], "f1": f1[index], "records": int(true[index])}
        rows.append({"class": name, **own, **areas})
    return [*rows, _mean_row(rows)]


def accuracy(predictions: Predictions) -> float:
    """The share of records whose class is predicted."""
    return float((predictions.labels == predictions.predicted).mean())


def roc_curve(is_class: Array, score: Array) -> tuple[Array, Array]:
    """False and true positive rates at every threshold, from none to all."""
    hits, misses = _cumulated(is_class, score)
    return _ratio(misses, misses[-1:]), _ratio(hits, hits[-1:])


def roc_area(is_class: Array, score: Array) -> float:
    """The area under the ROC curve; not a number where one of the classes is missing."""
    if is_class.all() or not is_class.any():
        return float("nan")
    false, true = roc_curve(is_class, score)
    return float(np.trapezoid(true, false))


def precision_recall_curve(is_class: Array, score: Array) -> tuple[Array, Array]:
    """Precision and recall at every threshold, from the highest down."""
    hits, misses = _cumulated(is_class, score)
    return _ratio(hits, hits + misses)[1:], _ratio(hits, hits[-1:])[1:]


def average_precision(is_class: Array, score: Array) -> float:
    """Precision summed over the gains of recall; not a number where the class is missing."""
    if not is_class.any():
        return float("nan")
    precision, recall = precision_recall_curve(is_class, score)
    return float((np.diff(recall, prepend=0.0) * precision).sum())


@dataclass(frozen=True)
class Calibration:
    """Of the most probable class: how probable it was said to be, and how often it was right, by bins."""

    confidence: Array
    accuracy: Array
    records: Array
    error: float
    """The expected calibration error: their difference, weighted by records."""


def calibration(predictions: Predictions, *, num_bins: int = 10) -> Calibration:
    """Bins of equal width; those without a record are left out."""
    confidence = predictions.probabilities.max(1)
    is_right = predictions.labels == predictions.predicted
    bins = np.minimum((confidence * num_bins).astype(int), num_bins - 1)
    records = np.bincount(bins, minlength=num_bins)
    used = records > 0
    said = np.bincount(bins, weights=confidence, minlength=num_bins)[used] / records[used]
    right = np.bincount(bins, weights=is_right, minlength=num_bins)[used] / records[used]
    error = float((np.abs(said - right) * records[used]).sum() / records.sum())
    return Calibration(said, right, records[used], error)


def _cumulated(is_class: Array, score: Array) -> tuple[Array, Array]:
    """Hits and misses down to each distinct score, beginning with none."""
    order = np.argsort(-score, kind="stable")
    score, is_class = score[order], is_class[order]
    ends = np.flatnonzero(np.diff(score, append=-np.inf))
    hits = np.cumsum(is_class)[ends]
    return np.concatenate([[0], hits]), np.concatenate([[0], 1 + ends - hits])


def _ratio(part: Array, whole: Array) -> Array:
    """0 where there is nothing to divide by."""
    return np.divide(part, whole, out=np.zeros(np.broadcast(part, whole).shape), where=np.asarray(whole) > 0)


def _mean_row(rows: list[dict[str, Any]]) -> dict[str, Any]:
    means = {key: _mean([row[key] for row in rows]) for key in rows[0] if key not in ("class", "records")}
    return {"class": "mean", "records": sum(row["records"] for row in rows), **means}


def _mean(values: list[float]) -> float:
    known = [value for value in values if not np.isnan(value)]
    return float(np.mean(known)) if known else float("nan")
