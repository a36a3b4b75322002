"""Loggers: where a run records its metrics. One file per destination."""

from trek.train.loggers.base import CheckpointRow, Logger, MetricRow
from trek.train.loggers.logger_registry import LOGGERS, open_logger

__all__ = ["LOGGERS", "CheckpointRow", "Logger", "MetricRow", "open_logger"]
