"""What is written of a classifier."""

from __future__ import annotations

import pytest

from trek.errors import InputError
from trek.train.artifacts import artifact_bytes
from trek.train.metrics.classification_report import ClassificationReport


def test_a_class_named_as_a_column_keeps_its_own() -> None:
    report = ClassificationReport([0, 1, 1], [3.0, 2.0, 1.0], classes=["true", "false"])
    content = artifact_bytes(report.artifacts()["confusion_matrix.csv"], "confusion_matrix.csv")
    assert content.decode().splitlines() == ["true,true,false", "true,0,1", "false,0,2"]


def test_predicted_classes_alone_make_a_report() -> None:
    assert ClassificationReport.from_classes([0, 1], [0.0, 0.0], classes=["a", "b"]).accuracy == 0.5
    with pytest.raises(InputError, match=r"predicted classes must be whole numbers from 0 to 1, .*, got 1\.5"):
        ClassificationReport.from_classes([0], [1.5], classes=["a", "b"])
