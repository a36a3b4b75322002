"""Logger objects of the starting program hear from a leader in another process what they would hear in their own."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from trek.train.jobs.messages import read_message
from trek.train.loggers.base import CheckpointRow, Logger, MetricRow
from trek.train.loggers.sent import SentLogger, call_loggers


class Notes(Logger):
    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def start(self, *, name: str, hparams: Mapping[str, object]) -> None:
        self.calls.append(("start", name, dict(hparams)))

    def log_metrics(self, row: MetricRow) -> None:
        self.calls.append(("metrics", row))

    def log_progress(self, fraction: float) -> None:
        self.calls.append(("progress", fraction))

    def log_checkpoint(self, row: CheckpointRow) -> None:
        self.calls.append(("checkpoint", row))

    def log_checkpoint_deleted(self, uuid: str) -> None:
        self.calls.append(("deleted", uuid))


def test_every_call_arrives_as_it_was_made() -> None:
    here, there = Notes(), Notes()
    hparams = {"model": object()}  # need not be JSON: it is known here
    sender = SentLogger(lambda message: call_loggers([there], json.loads(json.dumps(message)), hparams=hparams))
    for logger in (here, sender):
        logger.start(name="run", hparams=hparams)
        logger.log_metrics(MetricRow("training", 3, 0.5, {"loss": math.inf, "m": 1.0}, time_s=9.0, duration_s=2.0))
        logger.log_progress(0.25)
        logger.log_checkpoint(CheckpointRow("u", 3, "/somewhere", 9, {"loss": 1.0}, time_s=10.0))
        logger.log_checkpoint_deleted("u")
    assert there.calls == here.calls


def test_a_line_of_text_is_no_message() -> None:
    assert read_message("epoch 1") is None
