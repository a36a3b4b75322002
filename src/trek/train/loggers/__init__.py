"""Loggers: where a run tells its metrics. One file per destination."""

from trek.train.loggers.base import CheckpointRow, Logger, MetricRow

__all__ = ["CheckpointRow", "Logger", "MetricRow"]
