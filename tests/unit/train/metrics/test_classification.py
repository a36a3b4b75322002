"""The figures of evaluation reports are those of scikit-learn."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics

from trek.errors import InputError
from trek.train.metrics import classification
from trek.train.metrics.classification import Predictions


@st.composite
def predictions(draw: st.DrawFn) -> Predictions:
    """With ties, classes that are missing, and few records."""
    num, classes, seed = draw(st.integers(1, 60)), draw(st.integers(2, 5)), draw(st.integers(0, 2**16))
    generator = np.random.default_rng(seed)
    scores = generator.normal(size=(num, classes)).round(draw(st.integers(0, 3)))
    return Predictions.of(generator.integers(0, draw(st.integers(1, classes)), num), scores)


@given(predictions())
@settings(max_examples=60)
@pytest.mark.filterwarnings("ignore")  # scikit-learn's own, about classes that are missing
def test_all_figures_are_those_of_scikit_learn(one: Predictions) -> None:
    names = [str(index) for index in range(one.num_classes)]
    numbers = list(range(one.num_classes))
    matrix = metrics.confusion_matrix(one.labels, one.predicted, labels=numbers)
    assert (classification.confusion_matrix(one) == matrix).all()
    *rows, mean = classification.class_table(one, names)
    for average, found in ((None, rows), ("macro", [mean])):
        expected = metrics.precision_recall_fscore_support(
            one.labels, one.predicted, labels=numbers, average=average, zero_division=0
        )
        for key, values in zip(("precision", "recall", "f1"), expected, strict=False):
            assert [row[key] for row in found] == pytest.approx(np.atleast_1d(values))
    for index, row in enumerate(rows):
        is_class, score = one.labels == index, one.probabilities[:, index]
        if is_class.any() and not is_class.all():
            assert row["roc_auc"] == pytest.approx(metrics.roc_auc_score(is_class, score))
            assert row["average_precision"] == pytest.approx(metrics.average_precision_score(is_class, score))
        else:
            assert math.isnan(row["roc_auc"])


def test_curves_are_those_of_scikit_learn() -> None:
    generator = np.random.default_rng(0)
    is_class, score = generator.integers(0, 2, 200) == 1, generator.normal(size=200).round(1)
    false, true, _ = metrics.roc_curve(is_class, score, drop_intermediate=False)
    own_false, own_true = classification.roc_curve(is_class, score)
    assert own_false == pytest.approx(false)
    assert own_true == pytest.approx(true)
    precision, recall, _ = metrics.precision_recall_curve(is_class, score)
    own_precision, own_recall = classification.precision_recall_curve(is_class, score)
    assert own_precision[::-1] == pytest.approx(precision[:-1])
    assert own_recall[::-1] == pytest.approx(recall[:-1])


def test_calibration_compares_confidence_with_accuracy() -> None:
    sure = Predictions.of([1] * 8 + [0] * 2, [0.8] * 10)
    fit = classification.calibration(sure)
    assert (fit.confidence.tolist(), fit.accuracy.tolist(), fit.records.tolist()) == ([pytest.approx(0.8)], [0.8], [10])
    assert fit.error == pytest.approx(0)
    assert classification.calibration(Predictions.of([0] * 10, [0.8] * 10)).error == pytest.approx(0.8)


def test_scores_may_be_logits_probabilities_or_one_number() -> None:
    logits = np.array([[0.0, 1.0], [2.0, 0.0]])
    powers = np.exp(logits)
    for scores in (logits, powers / powers.sum(1, keepdims=True), logits[:, 1] - logits[:, 0]):
        assert Predictions.of([1, 0], scores).probabilities == pytest.approx(powers / powers.sum(1, keepdims=True))


def test_wrong_shapes_and_labels_are_refused() -> None:
    with pytest.raises(InputError, match=r"one label and one row of scores per record, got shapes \(1,\) and \(2, 2\)"):
        Predictions.of([1], np.zeros((2, 2)))
    with pytest.raises(InputError, match="labels must be from 0 to 1, the number of scores, got 2"):
        Predictions.of([2], np.zeros((1, 2)))
