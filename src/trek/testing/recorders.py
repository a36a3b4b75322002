"""FileRecorder: a Recorder that writes to a file, and fails or hangs as a test says. FileLogger uses it in a child."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from trek.train.loggers.background import BackgroundLogger
from trek.train.loggers.base import EndState, MetricRow
from trek.train.loggers.recorder import Recorder


class FileRecorder(Recorder):
    """Appends to `path`. The first `num_failures` flushes raise; while the file `hang` exists, every flush waits."""

    def __init__(self, *, path: str, num_failures: int = 0, hang: str | None = None) -> None:
        self._path = Path(path)
        self._num_failures = num_failures
        self._hang = Path(hang) if hang else None
        self._lines: list[Any] = []

    def start(self, *, name: str, hparams: Mapping[str, object]) -> None:
        """One line."""
        self._lines.append(["start", name, dict(hparams)])

    def log_metrics(self, row: MetricRow) -> None:
        """One line."""
        self._lines.append([row.group, row.batches, dict(row.metrics)])

    def end(self, state: EndState) -> None:
        """One line."""
        self._lines.append(["end", state])

    def flush(self) -> None:
        """Write the lines, or fail."""
        while self._hang is not None and self._hang.exists():
            time.sleep(0.02)
        if self._num_failures:
            self._num_failures -= 1
            raise ConnectionError("the destination is not there")
        with self._path.open("a") as file:
            file.writelines(json.dumps(line) + "\n" for line in self._lines)
        self._lines.clear()

    def close(self) -> None:
        """Write what is left."""
        self.flush()


class FileLogger(BackgroundLogger):
    """A FileRecorder in a process of its own."""

    recorder: ClassVar[str] = "trek.testing.recorders:FileRecorder"
    word: ClassVar[str] = "the file"


class CrashingLogger(BackgroundLogger):
    """Its child cannot even import its Recorder."""

    recorder: ClassVar[str] = "trek.testing.recorders:NotThere"
    word: ClassVar[str] = "nowhere"
