"""A result as it is shown: a few lines, however long the run was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trek.train.loop.stopping import Reason
from trek.train.metrics.goal import Goal
from trek.train.result import Result


def result(num_epochs: int, *, metric: str = "accuracy", stop_reason: Reason = "") -> Result:
    rows: list[dict[str, Any]] = [
        {"group": "validation", "batches": 10 * n, "epoch": float(n), metric: n / 1000}
        for n in range(1, num_epochs + 1)
    ]
    epochs = [{"epoch": n, "valid_loss": 1.0} for n in range(num_epochs)]
    return Result(Path("/runs/<a>"), rows, epochs, stop_reason=stop_reason, goal=Goal())


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (result(1000), "Result('/runs/<a>', 1000 epochs, best accuracy 1 after 10000 batches)"),
        (result(1, metric="loss"), "Result('/runs/<a>', 1 epoch, best loss 0.001 after 10 batches)"),
        (result(0, stop_reason="signal"), "Result('/runs/<a>', 0 epochs, stopped: signal)"),
    ],
    ids=["long", "one epoch", "nothing"],
)
def test_a_result_is_shown_in_one_line(shown: Result, text: str) -> None:
    assert repr(shown) == text


@pytest.mark.parametrize("num_epochs", [0, 1, 1000])
def test_a_notebook_shows_the_epochs_as_a_table_of_limited_length(num_epochs: int) -> None:
    page = result(num_epochs)._repr_html_()
    assert "<p>Result(&#x27;/runs/&lt;a&gt;&#x27;" in page
    assert "<table" in page
    assert len(page) < 10_000
