"""Batches: tuples of tensors by global row order, this rank's share of each; resumable at any row, at any world size.

Shuffled, rows are gathered from columns in memory (mapped, for a table persisted as Arrow); no shuffled copy is made.
In order, rows of a table that is not in memory stream through, so that it may be larger than memory.
The order itself is `trek.data.order.Order`, the same that training loaders use.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from trek.data import tensors
from trek.data.order import Order, Tail
from trek.data.plan import Source
from trek.errors import InputError

if TYPE_CHECKING:
    from trek.data.table import Table
    from trek.world import World

Columns = tuple[torch.Tensor, ...]


class Batches:
    """Iterate for one epoch of batches; a complete pass moves on to the next epoch.

    A batch of rows in order may share memory with the table: do not write to it in place.
    """

    def __init__(
        self, table: Table, batch_size: int, *, shuffle: bool, seed: int, world: World, tail: Tail, epoch: int
    ) -> None:
        self.order = Order(table.num_rows, batch_size, shuffle=shuffle, seed=seed, tail=tail)
        self.epoch = epoch
        self.world = world
        self._table = table
        self._held: Columns | None = None
        self._next_batch = 0
        self._start_batch = 0

    def __len__(self) -> int:
        return self.order.num_batches

    def __iter__(self) -> Iterator[Columns]:
        self._next_batch, self._start_batch = self._start_batch, 0
        streams = self._held is None and not self.order.shuffle and not _is_in_memory(self._table)
        for share in self._stream() if streams else self._gather():
            self._next_batch += 1
            yield share
        self.epoch += 1
        self._next_batch = 0

    def state_dict(self) -> dict[str, int]:
        """Where the next batch begins: the epoch, and the global row in it."""
        return {
            "seed": self.order.seed,
            "epoch": self.epoch,
            "row": self._next_batch * self.order.batch_size,
            "num_rows": self.order.num_rows,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Have the next iteration begin where `state` was taken, whatever world it was taken in."""
        if (state["num_rows"], state["seed"]) != (self.order.num_rows, self.order.seed):
            raise InputError(
                f"the state is of {state['num_rows']} rows with seed {state['seed']}, these batches of "
                f"{self.order.num_rows} rows with seed {self.order.seed}; it does not fit."
            )
        if state["row"] % self.order.batch_size:
            raise InputError(
                f"the state stands at row {state['row']}, which begins no batch of {self.order.batch_size}. "
                "Resume with the batch size it was taken with."
            )
        self.epoch, self._start_batch = state["epoch"], state["row"] // self.order.batch_size
        self._next_batch = self._start_batch

    def _gather(self) -> Iterator[Columns]:
        columns = self._columns()
        rows = self.order.rows(self.epoch) if self.order.shuffle or self.order.tail == "pad" else None
        for batch in range(self._next_batch, len(self)):
            if rows is None:
                yield tuple(column[self._slice(batch)] for column in columns)
            else:
                share = self.order.share(rows, batch, rank=self.world.rank, size=self.world.size)
                yield tuple(column.index_select(0, share) for column in columns)

    def _slice(self, batch: int) -> slice:
        start = batch * self.order.batch_size
        return slice(start + self.world.rank, start + self.order.num_records(batch), self.world.size)

    def _columns(self) -> Columns:
        if self._held is None:
            self._held = tuple(self._table.to_torch().values())
        return self._held

    def _stream(self) -> Iterator[Columns]:
        first = self._next_batch
        chunks = _Rebatcher(self._table, skip=first * self.order.batch_size)
        for batch in range(first, len(self)):
            columns = chunks.take(self.order.num_records(batch))
            yield tuple(column[self.world.rank :: self.world.size] for column in columns)


class _Rebatcher:
    """Cuts the stream of a table into runs of rows; begins again at its end, which is what padding asks for."""

    def __init__(self, table: Table, *, skip: int) -> None:
        self._table = table
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
            for batch in self._table:
                if batch.num_rows:
                    names = batch.schema.names
                    yield tuple(tensors.to_torch(c, name=n) for n, c in zip(names, batch.columns, strict=True))


def _is_in_memory(table: Table) -> bool:
    node = table._node
    return isinstance(node, Source) and node.whole() is not None
