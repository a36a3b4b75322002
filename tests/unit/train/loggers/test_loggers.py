"""Several loggers at once, each with every row; a resumed run goes on where it was."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn

import trek
from trek.train.loggers.base import Logger, MetricRow
from trek.train.loggers.csv import CSVLogger
from trek.train.loggers.jsonl import JSONLLogger, read_rows
from trek.train.loggers.tensorboard import TensorBoardLogger


def row(batches: int, group: str = "training", **metrics: float) -> MetricRow:
    return MetricRow(group=group, batches=batches, epoch=0, metrics=metrics, time_s=1e9 + batches)


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_csv_widens_for_a_metric_that_comes_later(tmp_path: Path) -> None:
    logger = CSVLogger(tmp_path / "out")
    logger.start(name="run", hparams={})
    logger.log_metrics(row(1, loss=0.5))
    logger.log_metrics(row(2, accuracy=0.7))
    logger.log_metrics(row(3, loss=0.25))
    logger.log_metrics(row(3, group="validation", loss=0.1))
    logger.close()
    told = [(r["batches"], r["loss"], r["accuracy"]) for r in table(tmp_path / "out" / "training.csv")]
    assert told == [("1", "0.5", ""), ("2", "", "0.7"), ("3", "0.25", "")]
    assert table(tmp_path / "out" / "validation.csv")[0]["loss"] == "0.1"


def test_csv_of_a_resumed_run_keeps_what_came_before_and_drops_what_is_told_anew(tmp_path: Path) -> None:
    for told in ([1, 2, 3], [3, 4]):
        logger = CSVLogger(tmp_path)
        logger.start(name="run", hparams={})
        for batches in told:
            logger.log_metrics(row(batches, loss=float(told[0])))
    assert [(r["batches"], r["loss"]) for r in table(tmp_path / "training.csv")] == [
        ("1", "1.0"),
        ("2", "1.0"),
        ("3", "3.0"),
        ("4", "3.0"),
    ]


def test_jsonl_appends_and_a_line_cut_short_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "metrics.jsonl"
    for batches in (1, 2):
        logger = JSONLLogger(path)
        logger.start(name="run", hparams={})
        logger.log_metrics(row(batches, loss=0.5))
        logger.close()
    with path.open("a") as file:
        file.write('{"group": "tra')
    assert [(r["batches"], r["metrics"]) for r in read_rows(path)] == [(1, {"loss": 0.5}), (2, {"loss": 0.5})]
    assert read_rows(tmp_path / "none.jsonl") == []


def test_tensorboard_gets_a_curve_per_metric(tmp_path: Path) -> None:
    logger = TensorBoardLogger(tmp_path)
    logger.start(name="run", hparams={"lr": 0.1})
    logger.log_metrics(row(1, loss=0.5))
    logger.log_metrics(row(4, loss=0.25))
    logger.close()
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert [(e.step, e.value, e.wall_time) for e in events.Scalars("training/loss")] == [
        (1, 0.5, 1e9 + 1),
        (4, 0.25, 1e9 + 4),
    ]


class Listener(Logger):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.said: list[Any] = []

    def start(self, *, name: str, hparams: Any) -> None:
        self.said.append(("start", name))

    def log_metrics(self, row: MetricRow) -> None:
        assert all(isinstance(value, float) for value in row.metrics.values())
        self.said.append((row.group, row.batches))

    def close(self) -> None:
        self.said.append("close")


def loop(tr: trek.Traveler) -> None:
    model = tr.add_model(nn.Linear(1, 1))
    optimizer = tr.add_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    for _ in tr.epochs(1):
        for x in tr.train([torch.ones(2, 1)] * 3):
            loss = model(x).sum()
            tr.backward(loss)
            tr.step(optimizer)
            tr.log(loss=loss)


@pytest.mark.parametrize("report_period", [2, 100])
def test_an_explicit_loop_opens_its_loggers_and_closes_them(tmp_path: Path, report_period: int) -> None:
    listener, path = Listener(), tmp_path / "rows.jsonl"
    loggers = [listener, JSONLLogger(path), CSVLogger(tmp_path)]
    trek.run(loop, workers=1, loggers=loggers, report_period=report_period, show_progress=False)
    early: list[Any] = [("training", 2), ("system", 2)] if report_period == 2 else []
    assert listener.said == [("start", "run"), *early, ("training", 3), ("system", 3), "close"]
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(rows) == len(listener.said) - 2
    assert len(table(tmp_path / "training.csv")) == len(rows) // 2
    assert {"records_per_s", "data_wait", "learning_rate"} == set(rows[-1]["metrics"])
    assert 0.0 <= rows[-1]["metrics"]["data_wait"] <= 1.0
