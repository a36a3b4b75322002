"""Tensors whose values lie in a file, for what does not fit into the memory of a process.

The file is a temporary one without a name, and ends with its tensor. What is used of it is in the system's page cache,
which gives it up for others.
"""

from __future__ import annotations

import mmap
import tempfile

import torch

from trek.system.disk import storage_errors


class DiskTensor(torch.Tensor):
    """Nobody writes to it any more, so whoever keeps it needs no copy."""


class DiskTensorWriter:
    """Blocks of rows that are appended one after another, and become a DiskTensor."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - `finish` closes it
        self._num_rows = 0
        self._kind = torch.empty(0)
        """An empty block, for the type and the shape of the rows."""

    def append(self, rows: torch.Tensor) -> None:
        """Write a block; StorageError if there is no room for it."""
        self._kind = rows[:0]
        self._num_rows += len(rows)
        if rows.numel():
            with storage_errors(tempfile.gettempdir(), remedy="Free some, or set TMPDIR to another folder."):
                self._file.write(rows.contiguous().view(-1).view(torch.uint8).numpy().data)
                self._file.flush()

    def close(self) -> None:
        """Give up what was written."""
        self._file.close()

    def finish(self) -> torch.Tensor:
        """All rows; nothing may be appended afterwards."""
        with self._file as file:
            if not file.tell():
                return self._kind.new_empty((self._num_rows, *self._kind.shape[1:]))
            content = mmap.mmap(file.fileno(), file.tell())
        flat = torch.frombuffer(content, dtype=self._kind.dtype)
        return flat.view(self._num_rows, *self._kind.shape[1:]).as_subclass(DiskTensor)
