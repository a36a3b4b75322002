"""RowMemory: the arrays of a table's rows (values and what the optimizer keeps), in memory or spilled to files.

Rows have numbers, which the index gives out. `SpilledRows` holds a limited number of them in memory, those used last,
and the rest in files; the numbers stay the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import numpy as np

from trek.ps.arena import Arena
from trek.ps.id_index import Rows
from trek.ps.row_copies import Array, gather, scatter

_DEMOTED = 8
"""One in so many of the rows in memory goes to the file at a time."""


class RowMemory(ABC):
    """Named arrays with one entry for each row."""

    @abstractmethod
    def add_field(self, name: str, width: int, dtype: Any) -> None:
        """Another array, of zeros."""

    @abstractmethod
    def prepare(self, rows: Rows, *, end: int, touched: Array) -> None:
        """Make `rows` writable, which are below `end`; `touched` says when every row was last used."""

    @abstractmethod
    def gather(self, name: str, rows: Rows) -> Array:
        """A copy of the entries of `rows`; anything where a row is negative."""

    @abstractmethod
    def scatter(self, name: str, rows: Rows, block: Array) -> None:
        """Set the entries of `rows`, which were prepared."""

    @abstractmethod
    def whole(self, name: str) -> Array | None:
        """The array itself, if its entries are in the order of rows; to be used before the next `prepare`."""

    @property
    @abstractmethod
    def row_bytes(self) -> int:
        """The size of a row, over all arrays."""

    @abstractmethod
    def num_in_memory(self, num_rows: int) -> int:
        """How many of `num_rows` are in memory."""

    @abstractmethod
    def forget(self, rows: Rows) -> None:
        """The rows are not used any more."""

    @abstractmethod
    def close(self) -> None:
        """Give everything back."""


class MemoryRows(RowMemory):
    """All rows in one place."""

    def __init__(self, *, folder: Path | None = None) -> None:
        self._folder = folder
        self._arenas: dict[str, Arena] = {}
        self._num_rows = 0

    def add_field(self, name: str, width: int, dtype: Any) -> None:
        """Another array, of zeros."""
        path = None if self._folder is None else self._folder / f"{name}.rows"
        self._arenas[name] = Arena((width,), dtype, path=path)
        self._arenas[name].reserve(self._num_rows)

    def prepare(self, rows: Rows, *, end: int, touched: Array) -> None:
        """Make room."""
        del rows, touched
        self.reserve(end)

    def reserve(self, num_rows: int) -> None:
        """Make room for `num_rows`."""
        self._num_rows = max(self._num_rows, num_rows)
        for arena in self._arenas.values():
            arena.reserve(num_rows)

    def gather(self, name: str, rows: Rows) -> Array:
        """A copy of the entries of `rows`."""
        return gather(self._arenas[name].array, rows)

    def scatter(self, name: str, rows: Rows, block: Array) -> None:
        """Set the entries of `rows`."""
        scatter(self._arenas[name].array, rows, block)

    def whole(self, name: str) -> Array | None:
        """The array."""
        return self._arenas[name].array

    @property
    def row_bytes(self) -> int:
        """The size of a row, over all arrays."""
        return sum(arena.row_bytes for arena in self._arenas.values())

    @property
    def names(self) -> list[str]:
        """The arrays."""
        return list(self._arenas)

    def num_in_memory(self, num_rows: int) -> int:
        """All."""
        return num_rows

    def forget(self, rows: Rows) -> None:
        """Their place is used again by whoever gets their numbers."""

    def close(self) -> None:
        """Give everything back."""
        for arena in self._arenas.values():
            arena.close()


class SpilledRows(RowMemory):
    """At most `max_bytes` of rows in memory, the rest in files of `folder`."""

    def __init__(self, *, max_bytes: int, folder: Path) -> None:
        self._max_bytes = max_bytes
        self._hot, self._cold = MemoryRows(), MemoryRows(folder=folder)
        self._place = Arena((), np.int32)
        """Where each row is: n + 1 = the n-th in memory, −n − 1 = the n-th of the file, 0 = nowhere."""
        self._owners: dict[bool, Arena] = {True: Arena((), np.int32), False: Arena((), np.int32)}
        self._ends = {True: 0, False: 0}
        self._free: dict[bool, list[Array]] = {True: [], False: []}

    def add_field(self, name: str, width: int, dtype: Any) -> None:
        """Another array, of zeros, in both places."""
        self._hot.add_field(name, width, dtype)
        self._cold.add_field(name, width, dtype)

    @property
    def row_bytes(self) -> int:
        """The size of a row, over all arrays."""
        return self._hot.row_bytes

    def num_in_memory(self, num_rows: int) -> int:
        """How many rows are in memory."""
        return self._ends[True] - sum(map(len, self._free[True]))

    def prepare(self, rows: Rows, *, end: int, touched: Array) -> None:
        """Bring `rows` into memory, and move others out if there are too many."""
        self._place.reserve(end)
        place = self._place.array
        absent = np.unique(rows[place[rows] <= 0])  # a push may name a row twice, which has one place
        if not len(absent):
            return
        room = max(self._max_bytes // self.row_bytes, len(rows))
        excess = self.num_in_memory(0) + len(absent) - room
        if excess > 0:
            self._demote(max(excess, room // _DEMOTED), kept=rows, touched=touched)
        spilled = absent[place[absent] < 0]
        blocks = {name: self._cold.gather(name, -place[spilled] - 1) for name in self._cold.names}
        self._release(spilled, is_hot=False)
        self._settle(absent, is_hot=True)
        for name, block in blocks.items():
            self._hot.scatter(name, place[spilled] - 1, block)

    def gather(self, name: str, rows: Rows) -> Array:
        """A copy of the entries of `rows`, wherever they are."""
        place = np.where(rows >= 0, self._place.array[np.maximum(rows, 0)], 0)
        block = self._hot.gather(name, np.where(place > 0, place - 1, -1).astype(np.int32))
        spilled = np.flatnonzero(place < 0)
        if len(spilled):
            block[spilled] = self._cold.gather(name, -place[spilled] - 1)
        return block

    def scatter(self, name: str, rows: Rows, block: Array) -> None:
        """Set the entries of `rows`, which are in memory."""
        self._hot.scatter(name, self._place.array[rows] - 1, block)

    def whole(self, name: str) -> Array | None:
        """Rows are wherever there was a place."""

    def forget(self, rows: Rows) -> None:
        """Free their places."""
        place = self._place.array[rows]
        self._release(rows[place > 0], is_hot=True)
        self._release(rows[place < 0], is_hot=False)

    def close(self) -> None:
        """Give everything back."""
        self._hot.close()
        self._cold.close()
        for arena in (self._place, *self._owners.values()):
            arena.close()

    def _demote(self, count: int, *, kept: Rows, touched: Array) -> None:
        """Move the rows in memory that were not used for longest to the file."""
        owners = self._owners[True].array[: self._ends[True]]
        place = self._place.array
        living = owners[place[owners] == np.arange(1, len(owners) + 1)]
        candidates = np.setdiff1d(living, kept, assume_unique=True)
        count = min(count, len(candidates))
        oldest = candidates[np.argsort(touched[candidates], kind="stable")[:count]]
        blocks = {name: self._hot.gather(name, place[oldest] - 1) for name in self._hot.names}
        self._release(oldest, is_hot=True)
        self._settle(oldest, is_hot=False)
        for name, block in blocks.items():
            self._cold.scatter(name, -place[oldest] - 1, block)

    def _settle(self, rows: Rows, *, is_hot: bool) -> None:
        """Give `rows` places in memory or in the file."""
        free = np.concatenate([*self._free[is_hot], np.empty(0, np.int32)]).astype(np.int32)
        reused, left = free[: len(rows)], free[len(rows) :]
        self._free[is_hot] = [left] if len(left) else []
        first = self._ends[is_hot]
        self._ends[is_hot] = end = first + len(rows) - len(reused)
        places = np.concatenate([reused, np.arange(first, end, dtype=np.int32)])
        (self._hot if is_hot else self._cold).reserve(end)
        self._owners[is_hot].reserve(end)
        self._owners[is_hot].array[places] = rows
        self._place.array[rows] = places + 1 if is_hot else -places - 1

    def _release(self, rows: Rows, *, is_hot: bool) -> None:
        if len(rows):
            place = self._place.array[rows]
            self._free[is_hot].append(np.abs(place) - 1)
            self._place.array[rows] = 0
