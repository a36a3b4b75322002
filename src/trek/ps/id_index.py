"""IdIndex: which row an id has. Open addressing over arrays, in compiled loops over whole batches of ids.

Any int64 is an id. A slot is an id and a row (12 bytes); growing by two fifths keeps 0.5 to 0.7 of them in use.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trek.ps.compiled import AHEAD, compiled, prefetch

Ids = np.ndarray[Any, np.dtype[np.int64]]
Rows = np.ndarray[Any, np.dtype[np.int32]]

_FULL = 0.7
_GROWTH = 1.4
_FIRST_SLOTS = 1024


class IdIndex:
    """The rows of ids. Rows are numbered without gaps, those of removed ids are used again first."""

    def __init__(self) -> None:
        self._keys = np.empty(_FIRST_SLOTS, np.int64)
        self._rows = np.full(_FIRST_SLOTS, -1, np.int32)
        self._free = np.empty(0, np.int32)
        self._num_free = 0
        self._next_row = 0

    def __len__(self) -> int:
        return self._next_row - self._num_free

    @property
    def num_bytes(self) -> int:
        """The memory of the slots."""
        return self._keys.nbytes + self._rows.nbytes + self._free.nbytes

    @property
    def end(self) -> int:
        """One more than the highest row in use."""
        return self._next_row

    def find(self, ids: Ids) -> Rows:
        """The row of every id; -1 for one that is not there."""
        found = np.empty(len(ids), np.int32)
        _find(self._keys, self._rows, ids, found)
        return found

    def add(self, ids: Ids) -> tuple[Rows, int]:
        """The row of every id, new ones included, and how many of them are new. Rows of new ids are in order."""
        self._reserve(len(self) + len(ids))
        found = np.empty(len(ids), np.int32)
        before = len(self)
        self._next_row, self._num_free = _add(
            self._keys, self._rows, ids, found, self._free, self._num_free, self._next_row
        )
        return found, len(self) - before

    def remove(self, ids: Ids) -> None:
        """Forget ids; their rows are used again."""
        rows = self.find(ids)
        rows = rows[rows >= 0]
        self._free = np.concatenate([self._free[: self._num_free], rows])
        self._num_free = len(self._free)
        _remove(self._keys, self._rows, ids)

    def items(self) -> tuple[Ids, Rows]:
        """Every id and its row, in the order of rows."""
        ids, rows = self.entries()
        order = np.argsort(rows, kind="stable")
        return ids[order], rows[order]

    def entries(self) -> tuple[Ids, Rows]:
        """Every id and its row, in any order."""
        used = self._rows >= 0
        return self._keys[used], self._rows[used]

    def _reserve(self, count: int) -> None:
        if count <= _FULL * len(self._keys):
            return
        size = max(int(count / _FULL) + 1, int(_GROWTH * len(self._keys)))
        keys, rows = np.empty(size, np.int64), np.full(size, -1, np.int32)
        _rehash(self._keys, self._rows, keys, rows)
        self._keys, self._rows = keys, rows


@compiled
def mix(value: int) -> Any:
    """Spread the bits of an id over 64 bits, one to one."""
    mixed = np.uint64(value)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


@compiled
def slot_of(value: int, size: int) -> Any:
    """Where the search for an id begins: the upper bits of `mix`, scaled to the size."""
    return np.int64(((mix(value) >> np.uint64(32)) * np.uint64(size)) >> np.uint64(32))


@compiled
def _slot_with(keys: Ids, rows: Rows, value: int) -> Any:
    """The slot of an id, or the free one (its row is negative) where the search for it ends."""
    slot = slot_of(value, len(keys))
    while keys[slot] != value and rows[slot] >= 0:
        slot += 1
        if slot == len(keys):
            slot = 0
    return slot


@compiled
def _fetch(keys: Ids, rows: Rows, ids: Ids, i: int) -> None:
    """Ask for the slot that the search for `ids[i]` begins with."""
    if i < len(ids):
        slot = slot_of(ids[i], len(keys))
        prefetch(keys, slot)
        prefetch(rows, slot)


@compiled
def _find(keys: Ids, rows: Rows, ids: Ids, found: Rows) -> None:
    for i in range(len(ids)):
        _fetch(keys, rows, ids, i + AHEAD)
        found[i] = rows[_slot_with(keys, rows, ids[i])]


@compiled
def _add(keys: Ids, rows: Rows, ids: Ids, found: Rows, free: Rows, num_free: int, next_row: int) -> tuple[int, int]:
    for i in range(len(ids)):
        _fetch(keys, rows, ids, i + AHEAD)
        slot = _slot_with(keys, rows, ids[i])
        if rows[slot] < 0:
            keys[slot] = ids[i]
            if num_free > 0:
                num_free -= 1
                rows[slot] = free[num_free]
            else:
                rows[slot] = next_row
                next_row += 1
        found[i] = rows[slot]
    return next_row, num_free


@compiled
def _rehash(old_keys: Ids, old_rows: Rows, keys: Ids, rows: Rows) -> None:
    for i in range(len(old_keys)):
        if old_rows[i] >= 0:
            slot = _slot_with(keys, rows, old_keys[i])
            keys[slot], rows[slot] = old_keys[i], old_rows[i]


@compiled
def _remove(keys: Ids, rows: Rows, ids: Ids) -> None:
    """Move later entries of a run back over the removed one, so that a search never stops too early."""
    size = len(keys)
    for i in range(len(ids)):
        slot = _slot_with(keys, rows, ids[i])
        if rows[slot] < 0:
            continue
        hole = slot
        slot = (slot + 1) % size
        while rows[slot] >= 0:
            home = slot_of(keys[slot], size)
            if (slot - home) % size >= (slot - hole) % size:
                keys[hole], rows[hole] = keys[slot], rows[slot]
                hole = slot
            slot = (slot + 1) % size
        rows[hole] = -1
