"""Recorder: the destination of a BackgroundLogger, in the child process.

Contracts: the methods of a Logger only collect, and raise nothing; `flush` sends what was collected, may take long, and
raises if it could not; it is then called again, and must not record anything twice. `close` flushes too, so that a
Recorder is a whole Logger, if a slow one. Nothing is written to standard output.
"""

from __future__ import annotations

from abc import abstractmethod

from trek.train.loggers.base import Logger


class Recorder(Logger):
    """A Logger that sends in batches. Its class takes the settings that its BackgroundLogger was made with."""

    @abstractmethod
    def flush(self) -> None:
        """Send what was collected."""
