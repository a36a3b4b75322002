"""Journal: what a coordinator did, in one file, so that a process that takes over continues where it stopped.

Entries are JSON lines. They are written before anybody hears of what they record; a last line that a crash cut short
was never heard of, and is left out when the journal is read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_MAX_ENTRIES = 200_000
"""A longer journal is replaced by a summary of where it led to."""


class Journal:
    """One writer. `entries` are those of an earlier process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.entries = list(_read(path))
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._num_written = len(self.entries)
        self._pending: list[str] = []
        self.replace(self.entries)  # without the line that a crash cut short

    @property
    def is_long(self) -> bool:
        """Whether it should be replaced by a summary."""
        return self._num_written > _MAX_ENTRIES

    def add(self, entry: Any) -> None:
        """Add an entry to what the next `flush` writes."""
        self._pending.append(json.dumps(entry))

    def flush(self) -> None:
        """Write what was added: from here on a crash of this process does not lose it."""
        if self._pending:
            os.write(self._file, ("\n".join(self._pending) + "\n").encode())
            self._num_written += len(self._pending)
            self._pending.clear()

    def replace(self, entries: list[Any]) -> None:
        """Put these entries in place of all that were written."""
        new = self._path.with_suffix(".new")
        new.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
        new.chmod(0o600)
        new.replace(self._path)
        os.close(self._file)
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND)
        self._num_written = len(entries)


def _read(path: Path) -> Iterator[Any]:
    if not path.exists():
        return
    for line in path.read_text().splitlines(keepends=True):
        if line.endswith("\n"):
            yield json.loads(line)
