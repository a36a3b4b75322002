"""Lines about the progress of a run, where there is no terminal."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from trek.testing.clock import FakeClock
from trek.train.loggers.base import MetricRow
from trek.train.loop.progress_lines import ProgressLines


def row(group: str, batches: int, **metrics: float) -> MetricRow:
    return MetricRow(group=group, batches=batches, epoch=0, metrics=metrics, time_s=0.0, duration_s=1.0)


def report(lines: ProgressLines, batches: int) -> None:
    lines.log_metrics(row("training", batches, loss=0.5))
    lines.log_metrics(row("system", batches, records_per_s=1000.0, data_wait=0.0))


def made(clock: Any, *, is_shown: bool = True) -> ProgressLines:
    return ProgressLines(lambda: "epoch 1/2", is_shown=lambda: is_shown, clock=clock.monotonic_s)


def test_reports_are_five_seconds_apart_and_validations_always_there(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = FakeClock()
    lines = made(clock)
    for batches in (1, 2, 3):
        report(lines, batches)
        lines.log_metrics(row("validation", batches, accuracy=batches / 4))
        clock.advance(2.5)
    assert capsys.readouterr().err.splitlines() == [
        "trek: epoch 1/2: loss 0.5, 1000 records/s",
        "trek: epoch 1/2: validation: accuracy 0.25",
        "trek: epoch 1/2: validation: accuracy 0.5",
        "trek: epoch 1/2: loss 0.5, 1000 records/s",
        "trek: epoch 1/2: validation: accuracy 0.75",
    ]


def test_nothing_is_written_if_progress_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    report(made(FakeClock(), is_shown=False), 1)
    assert capsys.readouterr().err == ""


def test_names_have_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    made(FakeClock()).log_metrics(row("validation", 1, **{"a\x1b[2Jb\n": 1.0}))
    assert capsys.readouterr().err == "trek: epoch 1/2: validation: a\\x1b[2Jb\\n 1\n"


def test_a_stream_that_is_closed_ends_the_lines_and_not_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    lines, stream = made(FakeClock()), io.StringIO()
    stream.close()
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(isatty=lambda: False, write=stream.write, flush=stream.flush))
    report(lines, 1)
    report(lines, 2)
