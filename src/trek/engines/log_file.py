"""Reads a log file that is being written, a line at a time, with the position at which each line ends.

A line that a progress bar redrew after carriage returns is given as a terminal would show it in the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trek.engines.base import LogLine
from trek.system.plain_files import NotPlainFile, open_plain

MAX_LINE_BYTES = 16_384
"""A longer line is given in pieces; one without an end yet, as far as it has been written."""

MAX_READ_BYTES = 256 << 10
"""One call reads this much, so that a member that writes a lot does not keep others from being read."""


def read_lines(path: Path, position: int, *, is_over: bool) -> list[LogLine]:
    """Whole lines from `position` on; with `is_over` an unfinished last line too. A file that is missing, or was
    replaced by something else, has none.

    A negative position counts from the end of the file, and the line that it falls into is left out.
    """
    try:
        with open_plain(path) as file:
            if position < 0:
                position = max(file.seek(0, 2) + position, 0)
                file.seek(position)
                position += len(file.readline(MAX_READ_BYTES)) if position else 0
            file.seek(position)
            data = file.read(MAX_READ_BYTES)
            is_all = is_over and not file.read(1)
    except (FileNotFoundError, NotPlainFile):
        return []
    return list(split_lines(data, position, is_all=is_all))


def split_lines(data: bytes, position: int, *, is_all: bool) -> Iterator[LogLine]:
    """The lines of `data`, which begins at `position`; what has no end yet is left, unless `is_all` or it is long."""
    start = 0
    while start < len(data):
        end = data.find(b"\n", start) + 1
        if not end:
            end = len(data) if is_all else start + _whole_characters(data[start:])
            if not is_all and end - start < MAX_LINE_BYTES:
                return
        yield from _pieces(data[start:end], position + start)
        start = end


def _pieces(raw: bytes, position: int) -> Iterator[LogLine]:
    """The last state of one line, in pieces that are not too long."""
    shown = raw.rstrip(b"\r\n")
    start = shown.rfind(b"\r") + 1
    while len(shown) - start > MAX_LINE_BYTES:
        end = start + _whole_characters(shown[start : start + MAX_LINE_BYTES])
        yield LogLine(_to_text(shown[start:end]), position + end)
        start = end
    yield LogLine(_to_text(shown[start:]), position + len(raw))


def _whole_characters(data: bytes) -> int:
    """How many bytes of `data` come before a UTF-8 character that is cut off at its end."""
    for back in range(1, min(len(data), 4)):
        byte = data[-back]
        if byte >= 0xC0:
            length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return len(data) - back if length > back else len(data)
    return len(data)


def _to_text(data: bytes) -> str:
    return data.decode("utf-8", errors="replace").replace("\0", "\N{REPLACEMENT CHARACTER}")
