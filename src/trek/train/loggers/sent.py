"""Logger objects of a program whose training runs in other processes: the calls are sent to where the objects are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from trek.train.loggers.base import ArtifactRow, CheckpointRow, EndState, JobIdentity, Logger, MetricRow

Send = Callable[[Mapping[str, Any]], None]


class SentLogger(Logger):
    """Sends every call as a message, for `call_loggers` in the program that has the loggers."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def identify(self, job: JobIdentity) -> None:
        """Send the job."""
        self._send({"logger": "identify", "job": asdict(job)})

    def start(self, *, name: str, hparams: Mapping[str, object]) -> None:
        """The hyperparameters are known there, and may be anything."""
        self._send({"logger": "start", "name": name})

    def log_metrics(self, row: MetricRow) -> None:
        """Send the row."""
        self._send({"logger": "log_metrics", "row": {**vars(row), "metrics": dict(row.metrics)}})

    def log_progress(self, fraction: float) -> None:
        """Send the fraction."""
        self._send({"logger": "log_progress", "fraction": fraction})

    def log_checkpoint(self, row: CheckpointRow) -> None:
        """Send the row."""
        self._send({"logger": "log_checkpoint", "row": {**vars(row), "metrics": dict(row.metrics)}})

    def log_checkpoint_deleted(self, uuid: str) -> None:
        """Send the id."""
        self._send({"logger": "log_checkpoint_deleted", "uuid": uuid})

    def log_artifact(self, row: ArtifactRow) -> None:
        """Send the row; the file is read where it is."""
        self._send({"logger": "log_artifact", "row": asdict(row)})

    def end(self, state: EndState) -> None:
        """Send the state."""
        self._send({"logger": "end", "state": state})


def call_loggers(loggers: Sequence[Logger], message: Mapping[str, Any], *, hparams: Mapping[str, object]) -> None:
    """Make the call that a SentLogger has sent."""
    for logger in loggers:
        match message["logger"]:
            case "identify":
                logger.identify(JobIdentity(**message["job"]))
            case "start":
                logger.start(name=message["name"], hparams=hparams)
            case "log_metrics":
                logger.log_metrics(MetricRow(**message["row"]))
            case "log_progress":
                logger.log_progress(message["fraction"])
            case "log_checkpoint":
                logger.log_checkpoint(CheckpointRow(**message["row"]))
            case "log_checkpoint_deleted":
                logger.log_checkpoint_deleted(message["uuid"])
            case "log_artifact":
                logger.log_artifact(ArtifactRow(**message["row"]))
            case "end":
                logger.end(message["state"])
