"""A file with one JSON object per report; every run writes one next to its checkpoints."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from trek.system.disk import storage_errors
from trek.train.loggers.base import Logger, MetricRow

_REMEDY = "Free some space, or set TREK_HOME to another disk, and continue with resume='latest'."


class JSONLLogger(Logger):
    """Appends every MetricRow to `path` as one line, and flushes it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[str] | None = None

    @classmethod
    def open(cls, folder: Path) -> JSONLLogger:
        """The file `metrics.jsonl` in `folder`."""
        return cls(folder / "metrics.jsonl")

    def start(self, *, name: str, hparams: Mapping[str, object]) -> None:
        """Open the file."""
        with storage_errors(self._path, remedy=_REMEDY):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("a")

    def log_metrics(self, row: MetricRow) -> None:
        """Write one line."""
        assert self._file is not None
        with storage_errors(self._path, remedy=_REMEDY):
            self._file.write(json.dumps({**vars(row), "metrics": dict(row.metrics)}) + "\n")
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            file, self._file = self._file, None
            with storage_errors(self._path, remedy=_REMEDY):
                file.close()


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Every row of a file written by a JSONLLogger; an incomplete line after a crash is skipped."""
    rows = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows
