"""Columns of a table as tensors: stored ones, from which rows are gathered, and streamed ones.

Rows are named by global index. Stored columns stay in their chunks when those are mapped files, so gathering
from a table larger than memory reads only the pages it touches.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import torch

from trek.data import tensors
from trek.data.batching.decoded import decode_for_all
from trek.data.batching.rows import Rows, ScatteredRows
from trek.errors import DataUnavailable

if TYPE_CHECKING:
    from trek.data.table import Table

Columns = tuple[torch.Tensor, ...]


class StoredColumns:
    """Columns in memory or in mapped files."""

    def __init__(self, columns: list[list[torch.Tensor]]) -> None:
        self._arrays = [[chunk.numpy() for chunk in chunks] for chunks in columns]
        self._ends = list(accumulate(len(chunk) for chunk in columns[0]))
        self._rows = [Rows(chunks) if len(chunks) == 1 else ScatteredRows(chunks) for chunks in self._arrays]

    @staticmethod
    def are_ready(table: Table) -> bool:
        """Whether the rows are in memory, or mapped, without anything being computed."""
        return table._node.whole() is not None

    @classmethod
    def of(cls, table: Table) -> StoredColumns:
        """The columns of a table that was evaluated.

        They exist once for all processes of a job on one machine: rows of files are decoded into mapped files, and what
        must be computed was, see `computed`.
        """
        rows = stored_rows(table)
        return cls([_chunks(rows, name) for name in rows.column_names])

    def take(self, rows: np.ndarray) -> Columns:
        """These rows, in this order."""
        return next(self.take_each([rows]))

    def take_each(self, shares: Sequence[np.ndarray]) -> Iterator[Columns]:
        """The rows of each share, in order; several are found at once in less time than one by one."""
        ends = list(accumulate(len(share) for share in shares))
        wanted = np.concatenate(shares)
        places = [(rows.gather, rows.places(wanted)) for rows in self._rows]
        for start, stop in pairwise([0, *ends]):
            yield tuple([torch.from_numpy(gather(found[start:stop])) for gather, found in places])

    def ranges(self, starts: range, *, rank: int, size: int) -> Iterator[Columns]:
        """Of the rows from each start to the next, every `size`-th from `rank` on; over the same memory where it can.

        Only ranges that reach from one chunk into the next are copied.
        """
        first = 0
        while first < len(starts):
            chunk = bisect_right(self._ends, starts[first])
            begin = self._ends[chunk - 1] if chunk else 0
            count = min((self._ends[chunk] - starts[first]) // starts.step, len(starts) - first)
            if count:
                arrays = [chunks[chunk] for chunks in self._arrays]
                for start in range(starts[first] - begin, starts[first] - begin + count * starts.step, starts.step):
                    # A view that NumPy made is a plain tensor; one that torch made costs each operation on it more.
                    stop = start + starts.step
                    yield tuple([torch.from_numpy(array[start + rank : stop : size]) for array in arrays])
            else:
                stop = min(starts[first] + starts.step, self._ends[-1])
                yield self.take(np.arange(min(starts[first] + rank, stop), stop, size))
            first += max(1, count)


def stored_rows(table: Table) -> pa.Table:
    """All rows of a table that was evaluated, not to be written to: in memory when they are few, else mapped."""
    whole = table._node.whole()
    if whole is not None:
        return whole
    return decode_for_all(table)


class RunningColumns:
    """The stream of a table, taken run by run; begins again at its end, which is what padding asks for."""

    def __init__(self, table: Table, *, num_rows: int, skip: int) -> None:
        self._table = table
        self._num_rows = num_rows
        self._chunks = self._cycle()
        self._chunk: Columns = ()
        self._used = self._length = 0
        self._skip(skip)

    def take(self, num_rows: int) -> Columns:
        """The next rows."""
        pieces = []
        while num_rows:
            if self._used == self._length:
                self._advance()
            stop = min(self._used + num_rows, self._length)
            pieces.append(tuple(column[self._used : stop] for column in self._chunk))
            num_rows -= stop - self._used
            self._used = stop
        if len(pieces) == 1:
            return pieces[0]
        return tuple(torch.cat(columns) for columns in zip(*pieces, strict=True))

    def _skip(self, num_rows: int) -> None:
        while num_rows:
            if self._used == self._length:
                self._advance()
            step = min(num_rows, self._length - self._used)
            self._used += step
            num_rows -= step

    def _advance(self) -> None:
        self._chunk = next(self._chunks)
        self._used, self._length = 0, len(self._chunk[0])

    def _cycle(self) -> Iterator[Columns]:
        while True:
            found = 0
            for batch in self._table:
                if batch.num_rows:
                    found += batch.num_rows
                    names = batch.schema.names
                    yield tuple(tensors.to_torch(c, name=n) for n, c in zip(names, batch.columns, strict=True))
            if found != self._num_rows:
                raise DataUnavailable(
                    f"{self._table._node.describe()}: {found:,} rows were read, and {self._num_rows:,} were counted "
                    "before. Read it when nothing changes it, or persist() it first."
                )


def _chunks(table: pa.Table, name: str) -> list[torch.Tensor]:
    return [tensors.to_torch(chunk, name=name) for chunk in table.column(name).chunks if len(chunk)]
