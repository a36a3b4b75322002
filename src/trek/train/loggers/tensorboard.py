"""TensorBoard event files. Needs the `tensorboard` extra."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trek.distribution import package_missing
from trek.train.loggers.base import Logger, MetricRow


class TensorBoardLogger(Logger):
    """Scalars as `<group>/<metric>` over batches, written by a thread of TensorBoard."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._make = _summary_writer()
        self._writer: Any = None
        self._hparams: Mapping[str, object] = {}

    def start(self, *, name: str, hparams: Mapping[str, object]) -> None:
        """The event file is opened with the first row."""
        self._hparams = hparams

    def log_metrics(self, row: MetricRow) -> None:
        """One point per metric. What an earlier run wrote from here on is replaced."""
        if self._writer is None:
            self._writer = self._make(str(self._folder), purge_step=row.batches)
            table = "\n".join(f"    {key}: {value}" for key, value in self._hparams.items())
            self._writer.add_text("hyperparameters", table, row.batches)
        for name, value in row.metrics.items():
            self._writer.add_scalar(f"{row.group}/{name}", value, row.batches, walltime=row.time_s)

    def close(self) -> None:
        """Flush and close."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def open_writer(folder: Path) -> Any:
    """A SummaryWriter of torch that writes to `folder`."""
    return _summary_writer()(str(folder))


class NoWriter:
    """In place of a SummaryWriter, or of its file: every method does nothing."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **named: None


NO_WRITER = NoWriter()


@contextmanager
def without_writing(writer: Any) -> Iterator[None]:
    """Within the block, a SummaryWriter that the caller's code has writes nothing."""
    writer._get_file_writer = NoWriter
    try:
        yield
    finally:
        del writer._get_file_writer


def _summary_writer() -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise package_missing("TensorBoard", "tensorboard", extra="tensorboard") from error
    return SummaryWriter
