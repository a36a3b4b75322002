"""Reads a log file that is being written, a line at a time, with the position at which each line ends."""

from __future__ import annotations

from pathlib import Path

from trek.engines.base import LogLine

MAX_LINE_BYTES = 16_384
"""A longer line without an end is given in pieces, as far as it has been written."""

MAX_READ_BYTES = 4 << 20


def read_lines(path: Path, position: int, *, is_over: bool) -> list[LogLine]:
    """Whole lines from `position` on; with `is_over` an unfinished last line too. A file that is missing has none."""
    try:
        with path.open("rb") as file:
            file.seek(position)
            data = file.read(MAX_READ_BYTES)
            is_all = is_over and not file.read(1)
    except FileNotFoundError:
        return []
    lines: list[LogLine] = []
    for raw in data.splitlines(keepends=True):
        is_whole = raw.endswith((b"\n", b"\r")) or len(raw) >= MAX_LINE_BYTES
        if not is_whole and not is_all:
            break
        position += len(raw)
        lines.append(LogLine(raw.decode("utf-8", errors="replace").rstrip("\r\n").replace("\0", "�"), position))
    return lines
