"""The figures of evaluation reports are those of scikit-learn."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
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
    return Predictions.of(generator.integers(0, draw(st.integers(1, classes)), num), scores, kind="logits")


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
    sure = Predictions.of([1] * 8 + [0] * 2, [0.8] * 10, kind="probabilities")
    fit = classification.calibration(sure)
    assert (fit.confidence.tolist(), fit.accuracy.tolist(), fit.records.tolist()) == ([pytest.approx(0.8)], [0.8], [10])
    assert fit.error == pytest.approx(0)
    assert classification.calibration(
        Predictions.of([0] * 10, [0.8] * 10, kind="probabilities")
    ).error == pytest.approx(0.8)


def test_scores_may_be_logits_probabilities_or_one_number() -> None:
    logits = np.array([[0.0, 1.0], [2.0, 0.0]])
    powers = np.exp(logits)
    probabilities = powers / powers.sum(1, keepdims=True)
    for scores in (logits, logits[:, 1] - logits[:, 0]):
        assert Predictions.of([1, 0], scores, kind="logits").probabilities == pytest.approx(probabilities)
    for scores in (probabilities, probabilities[:, 1], probabilities[:, 1:]):
        assert Predictions.of([1, 0], scores, kind="probabilities").probabilities == pytest.approx(probabilities)


def test_scores_that_may_be_either_are_refused_without_a_kind() -> None:
    small = np.full(200, 0.25)
    with pytest.raises(InputError, match=r"scores from 0\.25 to 0\.25 may be logits or probabilities\. Set kind"):
        Predictions.of([1] * 200, small)
    assert Predictions.of([1] * 200, small, kind="logits").predicted.sum() == 200
    assert Predictions.of([1] * 200, small, kind="probabilities").predicted.sum() == 0
    assert Predictions.of([1, 0], [3.0, -900.0]).predicted.tolist() == [1, 0]
    with pytest.raises(InputError, match="kind must be one of logits, probabilities, got 'odds'"):
        Predictions.of([1], [0.5], kind="odds")  # type: ignore[arg-type]


def test_probabilities_may_be_rounded_to_bfloat16() -> None:
    generator = torch.Generator().manual_seed(0)
    exact = (3 * torch.randn(500, 5, generator=generator)).softmax(1)
    rounded = Predictions.of(torch.zeros(500), exact.bfloat16().float(), kind="probabilities")
    assert rounded.probabilities == pytest.approx(exact.numpy(), abs=0.005)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_scores_and_labels_may_be_tensors_of_any_type(dtype: torch.dtype) -> None:
    scores = torch.tensor([[0.5, 2.0], [3.0, -1.0]], dtype=dtype, requires_grad=True)
    found = Predictions.of(torch.tensor([1, 0]), scores, kind="logits")
    assert found.probabilities == pytest.approx(scores.detach().double().softmax(1).numpy())
    assert found.labels.tolist() == found.predicted.tolist() == [1, 0]


def test_scores_that_are_not_of_their_kind_are_refused() -> None:
    with pytest.raises(InputError, match="probabilities must be from 0 to 1, got -1 to 2"):
        Predictions.of([1], [[-1.0, 2.0]], kind="probabilities")
    with pytest.raises(InputError, match=r"the probabilities of a record must add up to 1, got 1\.5"):
        Predictions.of([1, 1], [[0.5, 0.5], [0.75, 0.75]], kind="probabilities")
    for wrong in (math.nan, math.inf):
        with pytest.raises(InputError, match="scores must be finite, got nan or inf"):
            Predictions.of([1], [[wrong, 0.0]], kind="logits")
    assert Predictions.of([1], [[-math.inf, 0.0]], kind="logits").predicted.tolist() == [1]


@pytest.mark.parametrize("label", [2, -100, 0.5, math.nan])
def test_labels_that_are_no_class_are_refused(label: float) -> None:
    with pytest.raises(InputError, match=f"labels must be whole numbers from 0 to 1, .*, got {label}"):
        Predictions.of([1, label], np.zeros((2, 2)), kind="logits")


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(InputError, match=r"one label and one row of scores per record, got shapes \(1,\) and \(2, 2\)"):
        Predictions.of([1], np.zeros((2, 2)))
    with pytest.raises(InputError, match="needs at least one record, got none"):
        Predictions.of([], np.zeros((0, 2)))
