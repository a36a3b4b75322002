"""Stores: where Parts are kept while a plan runs, and when they move to disk because memory runs short."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import threading
import uuid
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from trek.data.execution.parts import FileSegment, MemorySegment, Part, Segment

_log = logging.getLogger("trek.data")


class Store(ABC):
    """Keeps batches; safe to use from several threads."""

    @abstractmethod
    def write(self, batches: Iterable[pa.RecordBatch]) -> Part:
        """Keep the rows of `batches`; in memory until `memory_limit_bytes` are kept there, then on disk."""

    @abstractmethod
    def close(self) -> None:
        """Remove every file; Parts that live in them can no longer be opened."""


class MemoryStore(Store):
    """Keeps batches as they are in this process, and spills to Arrow files."""

    def __init__(self, *, memory_limit_bytes: int, spill_dir: Path | None = None) -> None:
        self.memory_limit_bytes = memory_limit_bytes
        self.num_spilled_bytes = 0
        self._kept_bytes = 0
        self._lock = threading.Lock()
        self._folder = _LazyFolder(spill_dir)

    def write(self, batches: Iterable[pa.RecordBatch]) -> Part:
        """Keep the rows of `batches`."""
        segments: list[Segment] = []
        kept: list[pa.RecordBatch] = []
        stream = iter(batches)
        for batch in stream:
            if not self._reserve(batch.nbytes):
                segments.append(self._spill(batch, stream))
                break
            kept.append(batch)
        if kept:
            memory = MemorySegment(kept)
            weakref.finalize(memory, self._release, memory.nbytes)
            segments.insert(0, memory)
        return Part(tuple(segments))

    def close(self) -> None:
        """Remove the spill folder."""
        self._folder.remove()

    def _reserve(self, num_bytes: int) -> bool:
        with self._lock:
            if self._kept_bytes + num_bytes > self.memory_limit_bytes:
                return False
            self._kept_bytes += num_bytes
            return True

    def _release(self, num_bytes: int) -> None:
        with self._lock:
            self._kept_bytes -= num_bytes

    def _spill(self, first: pa.RecordBatch, rest: Iterable[pa.RecordBatch]) -> Segment:
        if not self.num_spilled_bytes:
            _log.warning(
                "results exceed %s MB of memory; the rest goes to %s", self.memory_limit_bytes >> 20, self._folder.path
            )
        segment = write_file(self._folder.path / f"{uuid.uuid4().hex}.arrow", first, rest).own()
        with self._lock:
            self.num_spilled_bytes += segment.nbytes
        return segment


class _LazyFolder:
    """A temporary folder that is made when first used, and removed with its owner."""

    def __init__(self, parent: Path | None) -> None:
        self._parent = parent
        self._path: Path | None = None
        self._lock = threading.Lock()

    @property
    def path(self) -> Path:
        with self._lock:
            if self._path is None:
                self._path = Path(tempfile.mkdtemp(prefix=f"trek-{os.getpid()}-", dir=self._parent))
                weakref.finalize(self, shutil.rmtree, self._path, ignore_errors=True)
            return self._path

    def remove(self) -> None:
        if self._path is not None:
            shutil.rmtree(self._path, ignore_errors=True)


def write_file(path: Path, first: pa.RecordBatch, rest: Iterable[pa.RecordBatch]) -> FileSegment:
    """Write batches of one schema to an Arrow IPC file."""
    num_rows = num_bytes = 0
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, first.schema) as writer:
        for batch in _chain(first, rest):
            writer.write_batch(batch)
            num_rows, num_bytes = num_rows + batch.num_rows, num_bytes + batch.nbytes
    return FileSegment(path, num_rows=num_rows, nbytes=num_bytes)


def _chain(first: pa.RecordBatch, rest: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    yield first
    yield from rest
