"""AccessLog: a line of JSON for each answered request."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import IO, Any

from trek.errors import StorageError


class AccessLog:
    """Writes to a file, or to stdout for `-`."""

    def __init__(self, target: str) -> None:
        self._is_own = target != "-"
        try:
            own = Path(target).open("a", buffering=1) if self._is_own else None  # noqa: SIM115 - closed by close()
            self._file: IO[str] = own or sys.stdout
        except OSError as error:
            raise StorageError(f"the access log {target!r} cannot be written: {error.strerror}.") from error

    def write(self, *, method: str, path: str, status: int, duration_s: float, **facts: Any) -> None:
        """One request."""
        line = {"time": round(time.time(), 3), "method": method, "path": path, "status": status}
        self._file.write(json.dumps({**line, "ms": round(duration_s * 1e3, 3), **facts}) + "\n")
        if not self._is_own:
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        if self._is_own:
            self._file.close()
