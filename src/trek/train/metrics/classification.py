"""Figures of a classifier from its scores: confusion matrix, per-class table, ROC and precision-recall, calibration.

Pure: arrays in, arrays and numbers out. Files and pictures are made in `classification_report`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from trek.errors import InputError

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Predictions:
    """The true class of each record, and the probability of each class."""

    labels: Array
    probabilities: Array

    @classmethod
    def of(cls, labels: Any, scores: Any) -> Predictions:
        """From labels and scores: logits or probabilities by class, or one score per record for two classes."""
        labels, scores = np.asarray(labels), np.asarray(scores, dtype=np.float64)
        if scores.ndim == 2 and scores.shape[1] == 1:
            scores = scores[:, 0]
        if labels.ndim != 1 or scores.ndim not in (1, 2) or len(labels) != len(scores):
            raise InputError(
                f"a report needs one label and one row of scores per record, got shapes {labels.shape} and "
                f"{scores.shape}."
            )
        probabilities = _softmax(scores) if scores.ndim == 2 else _two_classes(scores)
        labels = labels.astype(np.int64)
        if len(labels) and not 0 <= labels.min() <= labels.max() < probabilities.shape[1]:
            raise InputError(
                f"labels must be from 0 to {probabilities.shape[1] - 1}, the number of scores, got {labels.max()}."
            )
        return cls(labels, probabilities)

    @property
    def num_classes(self) -> int:
        """How many classes there are scores for."""
        return int(self.probabilities.shape[1])

    @property
    def predicted(self) -> Array:
        """The most probable class of each record."""
        return np.asarray(self.probabilities.argmax(1))


def _softmax(scores: Array) -> Array:
    """Rows that are probabilities already stay as they are."""
    if np.allclose(scores.sum(1), 1, atol=1e-4) and (scores >= 0).all():
        return scores
    powers = np.exp(scores - scores.max(1, keepdims=True))
    return np.asarray(powers / powers.sum(1, keepdims=True))


def _two_classes(scores: Array) -> Array:
    is_probability = len(scores) > 0 and scores.min() >= 0 and scores.max() <= 1
    positive = scores if is_probability else 1 / (1 + np.exp(-scores))
    return np.stack([1 - positive, positive], 1)


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
    return float((predictions.labels == predictions.predicted).mean()) if len(predictions.labels) else float("nan")


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
    confidence = predictions.probabilities.max(1) if len(predictions.labels) else np.zeros(0)
    is_right = predictions.labels == predictions.predicted
    bins = np.minimum((confidence * num_bins).astype(int), num_bins - 1)
    records = np.bincount(bins, minlength=num_bins)
    used = records > 0
    said = np.bincount(bins, weights=confidence, minlength=num_bins)[used] / records[used]
    right = np.bincount(bins, weights=is_right, minlength=num_bins)[used] / records[used]
    error = float((np.abs(said - right) * records[used]).sum() / max(records.sum(), 1))
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
