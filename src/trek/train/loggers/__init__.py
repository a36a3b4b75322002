"""Loggers: where a run records its metrics. One file per destination."""

from trek.train.loggers.background import BackgroundLogger
from trek.train.loggers.base import ArtifactRow, CheckpointRow, EndState, JobIdentity, Logger, MetricRow
from trek.train.loggers.logger_registry import LOGGERS, open_logger

__all__ = [
    "LOGGERS",
    "ArtifactRow",
    "BackgroundLogger",
    "CheckpointRow",
    "EndState",
    "JobIdentity",
    "Logger",
    "MetricRow",
    "open_logger",
]
