"""Reading on in a log file that is being written, a line at a time, knowing the byte each line ends at."""

from __future__ import annotations

from pathlib import Path

MAX_LINE = 16_384
MAX_READ = 4 * 2**20


class LogTail:
    """One file of one rank."""

    def __init__(self, path: Path, *, position: int = 0) -> None:
        self.path = path
        self.position = position

    def read(self, *, is_over: bool = False) -> list[tuple[int, str]]:
        """Whole lines that are new, each with the byte after it; with `is_over` an unfinished last line too."""
        try:
            with self.path.open("rb") as file:
                file.seek(self.position)
                data = file.read(MAX_READ)
        except FileNotFoundError:
            return []
        lines: list[tuple[int, str]] = []
        for raw in data.splitlines(keepends=True):
            is_whole = raw.endswith((b"\n", b"\r")) or len(raw) >= MAX_LINE
            if not is_whole and not (is_over and self.position + len(raw) == self._size()):
                break
            self.position += len(raw)
            lines.append((self.position, raw.decode("utf-8", errors="replace").rstrip("\r\n").replace("\0", "�")))
        return lines

    def _size(self) -> int:
        return self.path.stat().st_size
