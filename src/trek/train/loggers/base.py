"""Logger: where metrics, progress and checkpoints of a run are recorded. One file per destination beside this one.

Contracts: only the leader's loggers are called, always from the training thread: `identify` and `start`, then the other
methods in any order, then `end` and `close`. `close` may be called without any of them and more than once; without
`end`, the leader is lost or leaves, and the job goes on. A call must return quickly: a logger with slow work derives
from `BackgroundLogger`. Values are Python floats, already reduced over samples and ranks, so logging costs no device
sync. A resumed run starts a new logger in the same folder. An exception of a logger ends the run, so what is
unreachable for a while must not raise one.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

EndState = Literal["completed", "failed", "killed", "paused"]
"""How a run ended: `killed` by a signal or a user; `paused` to be resumed later."""


@dataclass(frozen=True)
class MetricRow:
    """One report of one group ("training", "validation" or a custom name) at one position of the run."""

    group: str
    batches: int
    """Number of batches trained at this point; together with `group`, it identifies the row."""
    epoch: float
    metrics: Mapping[str, float]
    time_s: float
    """Seconds since 1970."""
    duration_s: float = 0.0
    """Duration of the reported work."""


@dataclass(frozen=True)
class CheckpointRow:
    """One checkpoint that has been written to storage."""

    uuid: str
    batches: int
    path: str
    num_bytes: int
    metrics: Mapping[str, float]
    """The validation metrics at that point; empty if there was no validation."""
    time_s: float


@dataclass(frozen=True)
class ArtifactRow:
    """One file of the user's own that has been stored with the run."""

    name: str
    """A relative path with `/`; see `trek.train.artifacts.artifact_name`."""
    path: str
    """The stored file, which stays where it is."""
    num_bytes: int
    batches: int
    time_s: float


@dataclass(frozen=True)
class JobIdentity:
    """The job that a run belongs to, the same whenever the job is resumed or restarted."""

    key: str
    """Unique among all jobs."""
    name: str = "run"
    trial_id: int = 0
    """0 outside an experiment, as `experiment_id`."""
    experiment_id: int = 0
    experiment_key: str = ""
    """Unique among all experiments."""
    experiment_name: str = ""


class Logger(ABC):  # noqa: B024 - a logger overrides only what it needs
    """A destination of reports. Every method except `open` does nothing unless overridden."""

    @classmethod
    def open(cls, folder: Path) -> Logger:
        """Create the logger of a run whose files are in `folder`; used for loggers chosen by name.

        A logger with settings overrides this and takes them as keywords.
        """
        make: Any = cls
        logger: Logger = make(folder)
        return logger

    def identify(self, job: JobIdentity) -> None:  # noqa: B027
        """Which job the run belongs to."""

    def start(self, *, name: str, hparams: Mapping[str, object]) -> None:  # noqa: B027
        """The run starts."""

    def log_metrics(self, row: MetricRow) -> None:  # noqa: B027
        """Metrics are reported."""

    def log_progress(self, fraction: float) -> None:  # noqa: B027
        """The run has completed `fraction` of its length."""

    def log_checkpoint(self, row: CheckpointRow) -> None:  # noqa: B027
        """A checkpoint has been written."""

    def log_checkpoint_deleted(self, uuid: str) -> None:  # noqa: B027
        """A checkpoint was removed by the keep policy."""

    def log_artifact(self, row: ArtifactRow) -> None:  # noqa: B027
        """A file has been stored with the run; the same name again replaces it."""

    def end(self, state: EndState) -> None:  # noqa: B027
        """The run has ended."""

    def close(self) -> None:  # noqa: B027
        """Nothing follows: flush, and release resources."""
