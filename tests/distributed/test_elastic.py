"""Workers are really killed, stopped and added while they train: every row is trained once, whoever dies and when."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

import trek
from trek.testing.elastic_training import Fault, check_ledgers, train_with_ledger

EPOCHS = 2


@cache
def _undisturbed() -> list[torch.Tensor]:
    with tempfile.TemporaryDirectory() as folder:
        result = trek.run(train_with_ledger, folder, (), EPOCHS, workers=1, show_progress=False)
    return [torch.tensor(weights) for weights in result["weights"]]


def _train(folder: Path, *faults: Fault, workers: tuple[int, int] = (1, 3), **more: Any) -> dict[str, Any]:
    folder.mkdir()
    settings = {"show_progress": False, **more}
    result: dict[str, Any] = trek.run(train_with_ledger, str(folder), faults, EPOCHS, workers=workers, **settings)
    for trained, expected in zip(result["weights"], _undisturbed(), strict=True):
        torch.testing.assert_close(torch.tensor(trained), expected, rtol=1e-4, atol=1e-5)
    assert result["batches"] == EPOCHS * 12
    return result


@pytest.mark.usefixtures("warm_dir")
@pytest.mark.parametrize(
    "faults",
    [
        pytest.param([], id="nothing"),
        pytest.param([Fault("kill", "batch", 1, 5)], id="between-sums"),
        pytest.param([Fault("kill", "before_sum", 0, 5)], id="before-the-sum"),
        pytest.param([Fault("kill", "some_of_sum", 2, 5)], id="in-the-sum-some-have-it"),
        pytest.param([Fault("kill", "after_sum", 1, 5)], id="after-the-sum"),
        pytest.param([Fault("kill", "some_of_sum", 0, 5), Fault("kill", "some_of_sum", 1, 6)], id="twice"),
        pytest.param([Fault("kill", "batch", 1, 5), Fault("kill", "batch", 2, 5)], id="two-at-once"),
        pytest.param([Fault("kill", "report", 0, 12), Fault("kill", "report", 1, 24)], id="in-a-report"),
        pytest.param([Fault("kill", "validation", 1, 12), Fault("kill", "validation", 0, 12)], id="in-a-validation"),
        pytest.param([Fault("kill", "batch", 1, 5), Fault("kill", "entering", 2, 5)], id="while-meeting"),
        pytest.param([Fault("kill", "some_of_sum", 1, 5), Fault("kill", "giving", 0, 5)], id="while-giving-its-state"),
    ],
)
def test_every_row_is_trained_once(faults: list[Fault], tmp_path: Path) -> None:
    result = _train(tmp_path / "run", *faults)
    sizes = check_ledgers(tmp_path / "run", epochs=EPOCHS)
    assert sizes[1] == 3
    assert len(result["epochs"]) == EPOCHS
