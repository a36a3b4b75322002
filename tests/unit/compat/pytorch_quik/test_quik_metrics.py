"""Reports on classifiers under pytorch-quik's names: scores, classes, tensors and arrays alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import TensorDataset

import trek.compat.pytorch_quik as pq
from trek.errors import InputError

CLASSES = pq.utils.indexed_dict(("bad", "good", "great"))
TRUE = torch.tensor([0, 0, 1, 1, 1, 2])
PREDICTED = np.array([0, 1, 1, 1, 0, 2])
SCORES = torch.nn.functional.one_hot(torch.tensor(PREDICTED), 3) * 4.0 - 2.0
MATRIX = [[1, 1, 0], [1, 2, 0], [0, 0, 1]]


@pytest.mark.parametrize("found", [SCORES, PREDICTED, SCORES.numpy(), pd.Series(PREDICTED), PREDICTED.tolist()])
def test_scores_and_classes_give_the_same_matrix(found: Any, tmp_path: Path) -> None:
    matrix = pq.metrics.build_confusion_matrix(found, TRUE, CLASSES, save_loc=tmp_path)
    assert matrix.tolist() == MATRIX
    assert (tmp_path / "confusion.png").read_bytes().startswith(b"\x89PNG")


def test_a_matrix_has_names_in_pandas_and_any_numbers_in_a_picture(tmp_path: Path) -> None:
    frame = pq.metrics.build_confusion_matrix(SCORES, TRUE, CLASSES, in_pandas=True)
    assert frame.loc["good", "bad"] == 1
    assert (frame.index.name, frame.columns.name) == ("true", "predicted")
    shares = np.array(MATRIX) / 6
    path = pq.metrics.matplotlib_confusion_matrix(shares, CLASSES, save_loc=tmp_path / "shares.png")
    assert path.is_file()


def test_figures_are_those_of_scikit_learn(capsys: pytest.CaptureFixture[str]) -> None:
    sklearn = pytest.importorskip("sklearn.metrics", reason="scikit-learn is not installed")
    expected = sklearn.classification_report(
        TRUE, PREDICTED, target_names=list(CLASSES.values()), output_dict=True, zero_division=0
    )
    found = pq.metrics.build_class_dict(SCORES, TRUE, CLASSES, print_report=True)
    assert found["accuracy"] == pytest.approx(expected["accuracy"])
    for name in CLASSES.values():
        assert found[name] == pytest.approx(expected[name])
    assert "precision" in capsys.readouterr().out
    score = pq.metrics.f1_score_func(SCORES, TRUE)
    assert score == pytest.approx(sklearn.f1_score(TRUE, PREDICTED, average="weighted"))


def test_the_share_of_each_class_that_is_right_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    for labels in (CLASSES, pq.utils.inverse_dict(CLASSES)):
        assert pq.metrics.accuracy_per_class(SCORES, TRUE, labels) == pytest.approx(
            {"bad": 1 / 2, "good": 2 / 3, "great": 1.0}
        )
        assert capsys.readouterr().out.splitlines() == [
            "bad: 1 of 2 right",
            "good: 2 of 3 right",
            "great: 1 of 1 right",
        ]


def test_classes_without_a_name_are_refused() -> None:
    with pytest.raises(InputError, match=r"predicted classes must be whole numbers from 0 to 1, .*, got 2"):
        pq.metrics.build_class_dict(SCORES, TRUE, {0: "bad", 1: "good"})


def test_small_conversions() -> None:
    assert torch.equal(pq.metrics.choose_a_class(SCORES), torch.tensor(PREDICTED))
    assert pq.metrics.numpize_array(SCORES).shape == (6, 3)
    assert pq.metrics.matplotlib_gist_heat().name == "gist_heat_r"


def test_results_of_a_test_are_figures_and_a_picture(tmp_path: Path) -> None:
    args = pq.arg.default_args()
    pq.arg.update_args(args, {"base_dir": tmp_path, "data_date": "20210101", "bs": 6})
    tr = pq.travel.QuikTraveler(pq.travel.QuikTrek(args), type="test")
    tr.add_data(TensorDataset(torch.zeros(6, 1), TRUE))
    with pytest.raises(InputError, match=r"Call data\.add_results"):
        tr.record_results(CLASSES)
    tr.data.add_results(SCORES, TRUE)
    figures = tr.record_results(CLASSES, f1=False)
    assert figures["accuracy"] == pytest.approx(4 / 6)
    assert figures["good_recall"] == pytest.approx(2 / 3)
    assert "f1" not in figures
    assert (tmp_path / "data" / "confusion_20210101.png").is_file()
    tr.trek.traveler.close()
