"""Bytes into lines: what a member writes, cut at newlines, and the tail of a file that still grows."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from trek.system.plain_files import NotPlainFile, open_plain

MAX_LINE_BYTES = 1 << 20
"""A longer line arrives in pieces, so that output without newlines cannot fill the memory."""

MAX_READ_BYTES = 1 << 20
"""One read takes at most this much; a pipe holds no more, so after a writer's end one read empties it."""

KEPT_BYTES = 64 << 10
"""How much of a log is read for its last lines."""


class LineBuffer:
    """Collects bytes and gives whole lines."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[str]:
        """The lines that `data` completes."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        yield from map(_to_text, lines)
        if len(self._rest) > MAX_LINE_BYTES:
            yield from self.flush()

    def flush(self) -> Iterator[str]:
        """The last line, if it has no newline."""
        rest, self._rest = self._rest, b""
        if rest:
            yield _to_text(rest)


class Pipe:
    """The reading end of a member's stdout or stderr, without ever blocking."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.is_open = True
        os.set_blocking(fd, False)

    def read(self) -> bytes:
        """What is there now, up to `MAX_READ_BYTES`."""
        chunks: list[bytes] = []
        while self.is_open and sum(map(len, chunks)) < MAX_READ_BYTES:
            try:
                chunk = os.read(self.fd, 65536)
            except BlockingIOError:
                break
            self.is_open = bool(chunk)
            chunks.append(chunk)
        return b"".join(chunks)


class Tail:
    """The end of a file that another process writes; it need not exist yet."""

    def __init__(self, path: Path, *, offset: int = 0) -> None:
        self._path = path
        self._offset = offset

    def read(self) -> bytes:
        """What was appended since the last read, up to `MAX_READ_BYTES`."""
        try:
            with open_plain(self._path) as file:
                file.seek(self._offset)
                data = file.read(MAX_READ_BYTES)
        except (FileNotFoundError, NotPlainFile):
            return b""
        self._offset += len(data)
        return data

    def skip(self) -> None:
        """Leave out all but the last `KEPT_BYTES`: nobody listens, and only the last lines matter."""
        with contextlib.suppress(FileNotFoundError):
            self._offset = max(self._offset, self._path.stat().st_size - KEPT_BYTES)


def _to_text(line: bytes) -> str:
    # A progress bar redraws its line after carriage returns; what a terminal would show last is what counts.
    return line.rstrip(b"\r").rpartition(b"\r")[2].decode(errors="replace")
