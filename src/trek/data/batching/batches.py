"""Batches: tuples of tensors by global row order, this rank's share of each; resumable at any row, at any world size.

Shuffled, rows are gathered from memory or mapped files, and no shuffled copy is made. In order, rows of files stream
through, so that these may be larger than memory. What must be computed is computed once, see `computed`. The order is
`trek.data.batching.order.Order`, the same that training loaders use.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from trek.data.batching.batch_dataset import BatchDataset
from trek.data.batching.columns import Columns, RunningColumns, StoredColumns
from trek.data.batching.computed import evaluated
from trek.data.batching.order import Order, Tail
from trek.data.batching.prefetch import prefetched
from trek.errors import InputError

if TYPE_CHECKING:
    from trek.data.table import Table
    from trek.world import World

_FOUND_AT_ONCE = 64  # batches; each costs the bytes of its row numbers while its run lasts


class Batches:
    """Iterate for one epoch of batches; a complete pass moves on to the next epoch.

    A batch of rows in order may share memory with the table: do not write to it in place. `wait_s` adds up how long the
    loop over the batches waited for them; with `prefetch` that many batches are made ahead by a thread.
    """

    def __init__(
        self,
        table: Table,
        batch_size: int,
        *,
        shuffle: bool,
        seed: int,
        world: World,
        tail: Tail,
        epoch: int,
        columns: Sequence[str] | None = None,
        prefetch: int = 0,
    ) -> None:
        table = evaluated(table, columns, in_order=not shuffle and tail != "pad")
        self.order = Order(table.num_rows, batch_size, shuffle=shuffle, seed=seed, tail=tail)
        self.epoch = epoch
        self.world = world
        self.wait_s = 0.0
        self._table = table
        self._prefetch = prefetch
        self._stored: StoredColumns | None = None
        self._next_batch = 0
        self._start_batch = 0

    def __len__(self) -> int:
        return self.order.num_batches

    def __iter__(self) -> Iterator[Columns]:
        clock, began = time.perf_counter, time.perf_counter()
        self._next_batch, self._start_batch = self._start_batch, 0
        shares = self.shares(first=self._next_batch)
        with prefetched(shares, depth=self._prefetch) as ready:
            for share in ready:
                self._next_batch += 1
                self.wait_s += clock() - began
                yield share
                began = clock()
        self.epoch += 1
        self._next_batch = 0

    def shares(self, *, first: int = 0, every: int = 1) -> Iterator[Columns]:
        """This rank's share of the batches `first`, `first + every`, … of the current epoch."""
        is_stored = self._stored is not None or StoredColumns.are_ready(self._table)
        streams = not self.order.shuffle and not is_stored
        return self._running(first, every) if streams else self._gathered(first, every)

    @property
    def start(self) -> tuple[int, int]:
        """The epoch and the batch in it with which the next iteration begins."""
        return self.epoch, self._start_batch

    def pass_of(self, number: int, *, first: int, every: int) -> Iterator[Columns]:
        """What `shares` gives in the `number`-th pass from `start` on, which is left as it is."""
        epoch, start = self.start
        try:
            self.epoch = epoch + number
            yield from self.shares(first=first + (0 if number else start), every=every)
        finally:
            self.epoch = epoch

    def as_dataset(self) -> BatchDataset:
        """The batches as a torch IterableDataset, for `DataLoader(dataset, batch_size=None)` with any num_workers."""
        return BatchDataset(self)

    def state_dict(self) -> dict[str, Any]:
        """Where the next batch begins: the epoch, and the global row in it."""
        return {
            "seed": self.order.seed,
            "shuffle": self.order.shuffle,
            "epoch": self.epoch,
            "row": self._next_batch * self.order.batch_size,
            "num_rows": self.order.num_rows,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Have the next iteration begin where `state` was taken, whatever world it was taken in."""
        if missing := {"seed", "epoch", "row", "num_rows"} - state.keys():
            raise InputError(f"this is not a state of batches: {', '.join(sorted(missing))} missing.")
        order = self.order
        if (state["num_rows"], state["seed"]) != (order.num_rows, order.seed):
            raise InputError(
                f"the state is of {state['num_rows']} rows with seed {state['seed']}, these batches of "
                f"{order.num_rows} rows with seed {order.seed}; it does not fit."
            )
        if state.get("shuffle", order.shuffle) != order.shuffle:
            raise InputError(f"the state was taken with shuffle={state['shuffle']}; it does not fit these batches.")
        if state["row"] % self.order.batch_size:
            raise InputError(
                f"the state is at row {state['row']}, which is not the start of a batch of {self.order.batch_size}. "
                "Resume with the batch size it was taken with."
            )
        self.epoch, self._start_batch = state["epoch"], state["row"] // self.order.batch_size
        self._next_batch = self._start_batch

    def _gathered(self, first: int, every: int) -> Iterator[Columns]:
        if self._stored is None:
            self._stored = StoredColumns.of(self._table)
        order, rank, size = self.order, self.world.rank, self.world.size
        starts = range(0, order.num_batches * order.batch_size, order.batch_size)
        if order.shuffle or order.tail == "pad":
            return self._taken(self._stored, starts[first::every])
        ranges = self._stored.ranges(starts[first:], rank=rank, size=size)
        return ranges if every == 1 else islice(ranges, 0, None, every)

    def _taken(self, stored: StoredColumns, starts: range) -> Iterator[Columns]:
        order, rank, size = self.order, self.world.rank, self.world.size
        rows = order.rows(self.epoch).numpy()
        for begin in range(0, len(starts), _FOUND_AT_ONCE):
            run = [rows[start : start + order.batch_size] for start in starts[begin : begin + _FOUND_AT_ONCE]]
            yield from stored.take_each([share[rank::size] for share in run])

    def _running(self, first: int, every: int) -> Iterator[Columns]:
        self._table._node.require_unchanged()
        running = RunningColumns(self._table, num_rows=self.order.num_rows, skip=first * self.order.batch_size)
        for batch in range(first, len(self)):
            columns = running.take(self.order.num_records(batch))
            if (batch - first) % every == 0:
                yield tuple(column[self.world.rank :: self.world.size] for column in columns)
        self._table._node.require_unchanged()  # it is not read beyond the last row
