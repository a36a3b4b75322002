"""Rows of one column, gathered from one piece of memory, or from several.

Finding rows (`places`) is apart from fetching them (`gather`), so that what is paid once for a call is paid once for
many batches. Knows NumPy arrays alone; see `trek.data.batching.columns` for whole tables.
"""

from __future__ import annotations

import numpy as np


class Rows:
    """Rows of one array."""

    def __init__(self, chunks: list[np.ndarray]) -> None:
        (self._array,) = chunks

    def places(self, rows: np.ndarray) -> np.ndarray:
        """Where these rows are: here, their numbers."""
        return rows

    def gather(self, places: np.ndarray) -> np.ndarray:
        """The rows at these places, in this order."""
        return self._array.take(places, axis=0)


class ScatteredRows(Rows):
    """Rows of several arrays, gathered by address: one call of NumPy, however many arrays there are."""

    def __init__(self, chunks: list[np.ndarray]) -> None:
        self._chunks = chunks  # the owners of the memory that is read
        self._ends = np.cumsum([len(chunk) for chunk in chunks])
        self._row_bytes = chunks[0][:1].nbytes
        addresses = np.array([chunk.ctypes.data for chunk in chunks])
        begins = self._ends - [len(chunk) for chunk in chunks]
        self._offsets = addresses - addresses.min() - begins * self._row_bytes
        span = int(addresses.max() - addresses.min()) + chunks[int(addresses.argmax())].nbytes
        self._memory = np.asarray(_Memory(int(addresses.min()), self._row_bytes, span - self._row_bytes + 1))

    def places(self, rows: np.ndarray) -> np.ndarray:
        """Where these rows are: bytes from the lowest address."""
        if len(rows) and not 0 <= rows.min() <= rows.max() < self._ends[-1]:
            raise IndexError(f"rows {rows.min()} to {rows.max()} are not all among {self._ends[-1]} rows")
        places: np.ndarray = rows * self._row_bytes
        places += self._offsets[np.searchsorted(self._ends, rows, side="right")]
        return places

    def gather(self, places: np.ndarray) -> np.ndarray:
        """The rows at these places, in this order."""
        like = self._chunks[0]
        rows: np.ndarray = self._memory[places].view(like.dtype).reshape(len(places), *like.shape[1:])
        return rows


class _Memory:
    """Memory as an array of items `item_bytes` wide, one of them beginning at every byte: read-only."""

    def __init__(self, address: int, item_bytes: int, length: int) -> None:
        self.__array_interface__ = {
            "data": (address, True),
            "typestr": f"|V{item_bytes}",
            "shape": (length,),
            "strides": (1,),
            "version": 3,
        }
