"""Arena: rows of one kind, contiguous, growing without a copy.

The memory is a mapping that the kernel moves when it grows (mremap), and that costs nothing where it was never written.
With a path it lies in a file, which the system may page out.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import numpy as np

_FIRST_ROWS = 1024


class Arena:
    """A growing array. `array` is replaced when it grows: nobody may keep a view of it meanwhile."""

    def __init__(self, row_shape: tuple[int, ...], dtype: Any, *, path: Path | None = None) -> None:
        self._row_shape = row_shape
        self._dtype = np.dtype(dtype)
        self._row_bytes: int = int(np.prod(row_shape, dtype=np.int64)) * self._dtype.itemsize
        self._path = path
        self._map = self._open(_FIRST_ROWS * self._row_bytes)
        self.array = self._view()

    @property
    def row_bytes(self) -> int:
        """The size of one row."""
        return self._row_bytes

    def reserve(self, num_rows: int) -> None:
        """Make room for `num_rows` in all."""
        if num_rows <= len(self.array):
            return
        wanted = max(num_rows, 2 * len(self.array))
        del self.array  # a mapping that somebody looks at cannot move
        self._map.resize(wanted * self._row_bytes)
        self.array = self._view()

    def close(self) -> None:
        """Give the memory back, and remove the file."""
        del self.array
        self._map.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def _open(self, num_bytes: int) -> mmap.mmap:
        if self._path is None:
            memory = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            # Rows are read in random order: with small pages, most of the time goes into finding the pages.
            memory.madvise(mmap.MADV_HUGEPAGE)
            return memory
        with self._path.open("w+b") as file:
            file.truncate(num_bytes)
            return mmap.mmap(file.fileno(), num_bytes)

    def _view(self) -> np.ndarray[Any, Any]:
        return np.frombuffer(self._map, self._dtype).reshape(-1, *self._row_shape)
