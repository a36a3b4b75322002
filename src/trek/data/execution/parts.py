"""Parts: partitions that were computed and are kept, in this process's memory or in Arrow files that others can map.

A Part is a row of segments, so that joining the pieces of an exchange copies nothing. A segment owns what it holds:
when the last reference to it goes, its memory or its file goes.
"""

from __future__ import annotations

import mmap
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa

# Python names it from 3.13 on; it lets a file larger than memory be mapped privately.
_MAP_NORESERVE = 0x4000


class Readable(Protocol):
    """Anything that gives record batches, every time from the beginning."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, in order."""
        ...


class Segment(ABC):
    """Some rows of a Part in one place."""

    num_rows: int
    nbytes: int

    @abstractmethod
    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, in order."""


class MemorySegment(Segment):
    """Rows in the memory of this process."""

    def __init__(self, batches: list[pa.RecordBatch], *, nbytes: int | None = None) -> None:
        self._batches = batches
        self.num_rows = sum(batch.num_rows for batch in batches)
        self.nbytes = sum(batch.nbytes for batch in batches) if nbytes is None else nbytes

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, in order."""
        return iter(self._batches)


class FileSegment(Segment):
    """Rows in an Arrow IPC file, mapped when read. `own` deletes the file with the last reference to the segment."""

    def __init__(self, path: Path, *, num_rows: int, nbytes: int) -> None:
        self.path = path
        self.num_rows = num_rows
        self.nbytes = nbytes

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, in order, over the mapped file."""
        reader = open_mapped(self.path)
        return (reader.get_batch(index) for index in range(reader.num_record_batches))

    def own(self) -> FileSegment:
        """Delete the file when this segment is no longer used; what is mapped stays readable."""
        weakref.finalize(self, self.path.unlink, missing_ok=True)
        return self


class RangeSegment(Segment):
    """The rows from `start` to `stop` of another segment; nothing is copied."""

    def __init__(self, origin: Segment, start: int, stop: int) -> None:
        self._origin = origin
        self._start = start
        self.num_rows = stop - start
        self.nbytes = origin.nbytes * self.num_rows // max(1, origin.num_rows)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, in order."""
        skip, missing = self._start, self.num_rows
        for batch in self._origin.batches():
            if missing <= 0:
                return
            if skip < batch.num_rows:
                rows = batch.slice(skip, missing)
                missing -= rows.num_rows
                yield rows
            skip = max(0, skip - batch.num_rows)


@dataclass(frozen=True)
class Part:
    """A partition that was computed."""

    segments: tuple[Segment, ...]

    @property
    def num_rows(self) -> int:
        """Rows in all segments."""
        return sum(segment.num_rows for segment in self.segments)

    @property
    def nbytes(self) -> int:
        """Bytes in all segments."""
        return sum(segment.nbytes for segment in self.segments)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, in order."""
        for segment in self.segments:
            yield from segment.batches()

    def slice(self, start: int, stop: int) -> Part:
        """The rows from `start` to `stop`; nothing is copied."""
        ranges, first = [], 0
        for segment in self.segments:
            low, high = max(start - first, 0), min(stop - first, segment.num_rows)
            if low < high:
                ranges.append(segment if high - low == segment.num_rows else RangeSegment(segment, low, high))
            first += segment.num_rows
        return Part(tuple(ranges))


def open_mapped(path: Path, *, read_only: bool = False) -> pa.ipc.RecordBatchFileReader:
    """Map an Arrow IPC file. All processes share its pages; writing to what was read changes a private copy only.

    With `read_only` writing is not possible, and the mapping counts against no limit on the memory of the process.
    """
    with path.open("rb") as file:
        # Private and writable, so that an in-place operation on a batch can neither crash nor reach the file.
        flags, protection = mmap.MAP_PRIVATE | _MAP_NORESERVE, mmap.PROT_READ | mmap.PROT_WRITE
        if read_only:
            flags, protection = mmap.MAP_SHARED, mmap.PROT_READ
        mapped = mmap.mmap(file.fileno(), 0, flags=flags, prot=protection)
    return pa.ipc.open_file(pa.BufferReader(pa.py_buffer(mapped)))
