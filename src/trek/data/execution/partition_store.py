"""Stores: where Parts are kept while a plan runs, and when they move to disk because memory runs short.

`MemoryStore` keeps batches in this process. `SharedStore` keeps them in files of shared memory, so that other processes
map what one wrote; any process that knows its folders can write to it.
"""

from __future__ import annotations

import logging
import shutil
import threading
import uuid
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa

from trek.data.execution.parts import FileSegment, MemorySegment, Part, Segment
from trek.data.execution.shm import new_folder
from trek.data.execution.spill_folder import new_spill_folder, remove_spill_folder
from trek.system.disk import storage_errors

_log = logging.getLogger("trek.data")
_NUM_WRITERS = 64  # processes that may write to one store at the same time
_counting = threading.Lock()
_allowances: dict[Path, int] = {}
"""By folder, how many bytes this process may still write before it counts again."""


class Writer(ABC):
    """Takes the batches of one Part."""

    @abstractmethod
    def append(self, batch: pa.RecordBatch) -> None:
        """Keep the rows of `batch` after those kept before."""

    @abstractmethod
    def finish(self) -> Part:
        """Everything appended, as a Part."""

    @abstractmethod
    def abort(self) -> None:
        """Throw away what was appended."""


class PartitionStore(ABC):
    """Keeps batches; safe to use from several threads, a Writer from one."""

    @property
    @abstractmethod
    def num_spilled_bytes(self) -> int:
        """Bytes on disk because memory ran short."""

    @abstractmethod
    def writer(self) -> Writer:
        """A writer of one Part; in memory until the store's limit is reached, then on disk."""

    @abstractmethod
    def close(self) -> None:
        """Remove every file; Parts that live in them can no longer be opened."""

    def write(self, batches: Iterable[pa.RecordBatch]) -> Part:
        """Keep all batches as one Part."""
        writer = self.writer()
        try:
            for batch in batches:
                writer.append(batch)
            return writer.finish()
        except BaseException:
            writer.abort()
            raise


class MemoryStore(PartitionStore):
    """Keeps batches as they are in this process, and spills to Arrow files."""

    def __init__(self, *, memory_limit_bytes: int, spill_dir: Path | None = None) -> None:
        self.memory_limit_bytes = memory_limit_bytes
        self._num_spilled_bytes = 0
        self._kept_bytes = 0
        self._has_warned = False
        self._lock = threading.Lock()
        self._folder = _LazyFolder(spill_dir)

    @property
    def num_spilled_bytes(self) -> int:
        """Bytes that went to disk so far."""
        return self._num_spilled_bytes

    def writer(self) -> Writer:
        """A writer of one Part."""
        return _MemoryWriter(self)

    def close(self) -> None:
        """Remove the spill folder."""
        self._folder.remove()

    def reserve(self, num_bytes: int) -> bool:
        """Whether `num_bytes` more may be kept in memory; if so they count as kept."""
        with self._lock:
            if self._kept_bytes + num_bytes > self.memory_limit_bytes:
                return False
            self._kept_bytes += num_bytes
            return True

    def release(self, num_bytes: int) -> None:
        """Subtract `num_bytes` that were released from memory."""
        with self._lock:
            self._kept_bytes -= num_bytes

    def spill_file(self) -> Path:
        """A new path on disk; warns the first time."""
        path = self._folder.path / f"{uuid.uuid4().hex}.arrow"
        with self._lock:
            is_first, self._has_warned = not self._has_warned, True
        if is_first:
            warn_of_spilling(self.memory_limit_bytes, path.parent)
        return path

    def count_spilled(self, num_bytes: int) -> None:
        """`num_bytes` were written to disk."""
        with self._lock:
            self._num_spilled_bytes += num_bytes


class _MemoryWriter(Writer):
    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._kept: list[pa.RecordBatch] = []
        self._kept_bytes = 0
        self._spilled: FileWriter | None = None

    def append(self, batch: pa.RecordBatch) -> None:
        size = batch.nbytes
        if self._spilled is None and self._store.reserve(size):
            self._kept.append(batch)
            self._kept_bytes += size
            return
        if self._spilled is None:
            self._spilled = FileWriter(self._store.spill_file())
        self._spilled.append(batch)
        self._store.count_spilled(size)

    def finish(self) -> Part:
        segments: list[Segment] = []
        if self._kept:
            segments.append(MemorySegment(self._kept, nbytes=self._kept_bytes))
            weakref.finalize(segments[0], self._store.release, self._kept_bytes)
        if self._spilled is not None:
            segments.append(self._spilled.finish().own())
        return Part(tuple(segments))

    def abort(self) -> None:
        self._store.release(self._kept_bytes)
        if self._spilled is not None:
            self._spilled.finish().path.unlink(missing_ok=True)


@dataclass(frozen=True)
class SharedStore(PartitionStore):
    """Keeps batches in Arrow files: in a folder of shared memory until it holds the limit, then in one on disk."""

    memory_dir: Path
    disk_dir: Path
    memory_limit_bytes: int

    @classmethod
    def create(cls, *, memory_limit_bytes: int, spill_dir: Path | None = None) -> SharedStore:
        """A store in new folders, which are removed by `close`."""
        memory_dir = new_folder()
        disk_dir = new_spill_folder(spill_dir)
        free = int(shutil.disk_usage(memory_dir).free * 0.8)
        return cls(memory_dir, disk_dir, min(memory_limit_bytes, free))

    @property
    def num_spilled_bytes(self) -> int:
        """Bytes that are on disk now."""
        return _bytes_in(self.disk_dir)

    def writer(self) -> Writer:
        """A writer of one Part."""
        return _SharedWriter(self)

    def close(self) -> None:
        """Remove both folders."""
        shutil.rmtree(self.memory_dir, ignore_errors=True)
        remove_spill_folder(self.disk_dir)
        _allowances.pop(self.memory_dir, None)

    def has_room(self, num_bytes: int) -> bool:
        """Whether `num_bytes` more fit in shared memory.

        The files are counted again once this process has written its share of the room that there was: counting them
        for every batch would take a time that grows with the square of their number.
        """
        with _counting:
            if num_bytes > _allowances.get(self.memory_dir, 0):
                room = self.memory_limit_bytes - _bytes_in(self.memory_dir)
                if num_bytes > room:
                    return False
                _allowances[self.memory_dir] = max(num_bytes, room // _NUM_WRITERS)
            _allowances[self.memory_dir] -= num_bytes
            return True


class _SharedWriter(Writer):
    def __init__(self, store: SharedStore) -> None:
        self._store = store
        self._finished: list[FileSegment] = []
        self._file: FileWriter | None = None
        self._is_on_disk = False

    def append(self, batch: pa.RecordBatch) -> None:
        if not self._is_on_disk and not self._store.has_room(batch.nbytes):
            self._close_file()
            self._is_on_disk = True
            if not self._store.num_spilled_bytes:
                warn_of_spilling(self._store.memory_limit_bytes, self._store.disk_dir)
        if self._file is None:
            folder = self._store.disk_dir if self._is_on_disk else self._store.memory_dir
            self._file = FileWriter(folder / f"{uuid.uuid4().hex}.arrow")
        self._file.append(batch)

    def finish(self) -> Part:
        self._close_file()
        return Part(tuple(self._finished))

    def abort(self) -> None:
        self._close_file()
        for segment in self._finished:
            segment.path.unlink(missing_ok=True)

    def _close_file(self) -> None:
        if self._file is not None:
            self._finished.append(self._file.finish())
            self._file = None


class FileWriter:
    """Writes batches of one schema to an Arrow IPC file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = pa.OSFile(str(path), "wb")
        self._writer: Any = None
        self._num_rows = self._num_bytes = 0

    def append(self, batch: pa.RecordBatch) -> None:
        """Write the rows of `batch`."""
        with storage_errors(self.path.parent, remedy="Free some space, or give the executor another spill_dir."):
            if self._writer is None:
                self._writer = pa.ipc.new_file(self._file, batch.schema)
            self._writer.write_batch(batch)
        self._num_rows += batch.num_rows
        self._num_bytes += batch.nbytes

    def finish(self) -> FileSegment:
        """Close the file."""
        if self._writer is not None:
            self._writer.close()
        self._file.close()
        return FileSegment(self.path, num_rows=self._num_rows, nbytes=self._num_bytes)


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
                self._path = new_spill_folder(self._parent)
                weakref.finalize(self, remove_spill_folder, self._path)
            return self._path

    def remove(self) -> None:
        if self._path is not None:
            remove_spill_folder(self._path)


def default_memory_limit() -> int:
    """Half of what is free now."""
    return int(psutil.virtual_memory().available // 2)


def warn_of_spilling(memory_limit_bytes: int, folder: Path) -> None:
    """Warn that results no longer fit in memory."""
    _log.warning(
        "results exceed the memory limit of %.3g MB; the rest is written to %s", memory_limit_bytes / 1e6, folder
    )


def _bytes_in(folder: Path) -> int:
    total = 0
    for file in folder.iterdir():
        try:
            total += file.stat().st_size
        except FileNotFoundError:  # freed by its owner while we looked
            continue
    return total
