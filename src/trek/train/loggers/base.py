"""Logger: where metrics, progress and checkpoints of a run are recorded. One file per destination beside this one.

Contracts: only the leader's loggers are called, always from the training thread: `start`, then any other methods in any
order, then `close`, which may come without `start` and more than once. A call returns at once: a logger with slow work
to do queues it for a thread of its own, which `close` ends. Values arrive as Python floats, already reduced over ranks
and by sample, so no logger costs a device sync. A resumed run starts a new logger in the same folder.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class MetricRow:
    """One report of one group ("training", "validation" or a name of the user's) at one point of the run."""

    group: str
    batches: int
    """Batches trained when the row was made; with `group` it names the row."""
    epoch: float
    metrics: Mapping[str, float]
    time_s: float
    """Seconds since 1970."""
    duration_s: float = 0.0
    """What the reported work took."""


@dataclass(frozen=True)
class CheckpointRow:
    """One checkpoint that is whole and on storage."""

    uuid: str
    batches: int
    path: str
    num_bytes: int
    metrics: Mapping[str, float]
    """The validation metrics at that point; empty when none were taken."""
    time_s: float


class Logger(ABC):  # noqa: B024 - a logger overrides only what it needs
    """A destination of reports. Every method but `open` does nothing unless overridden."""

    @classmethod
    def open(cls, folder: Path) -> Logger:
        """The logger of a run whose files are in `folder`: how one is made by name.

        A logger with settings of its own overrides this and takes them as keywords.
        """
        make: Any = cls
        logger: Logger = make(folder)
        return logger

    def start(self, *, name: str, hparams: Mapping[str, object]) -> None:  # noqa: B027
        """The run begins."""

    def log_metrics(self, row: MetricRow) -> None:  # noqa: B027
        """Metrics are known."""

    def log_progress(self, fraction: float) -> None:  # noqa: B027
        """The run stands at `fraction` of its length."""

    def log_checkpoint(self, row: CheckpointRow) -> None:  # noqa: B027
        """A checkpoint is whole."""

    def log_checkpoint_deleted(self, uuid: str) -> None:  # noqa: B027
        """A checkpoint was removed by the keep policy."""

    def close(self) -> None:  # noqa: B027
        """The run ended, successfully or not: flush and release everything."""
