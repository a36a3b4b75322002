"""Batches of a Table whose rows are not in memory as one piece: gathered from mapped files, or streamed.

Which batches there are, and what is in them, is decided by `trek.data.batching.batches`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from trek.data.batching.order import Order
from trek.data.loaders.base import Batch, Loader, do_nothing
from trek.world import World

if TYPE_CHECKING:
    from trek.data.batching.batches import Batches
    from trek.data.table import Table


class TableLoader(Loader):
    """A Table in the order `order` gives its rows. A batch is a list of columns, and a copy where it may be changed."""

    is_pure = True

    def __init__(
        self,
        table: Table,
        *,
        order: Order,
        world: World,
        assemble: Callable[[Sequence[torch.Tensor]], Any] = list,
    ) -> None:
        self._assemble = assemble
        self._table = table
        self._order = order
        self._world = world
        self._batches: Batches | None = None
        self.num_batches = order.num_batches
        self.batch_records = order.batch_size

    def batches(self, epoch: int, *, start: int = 0, at_start: Callable[[], None] = do_nothing) -> Iterator[Batch]:
        """This rank's shares from the `start`-th on."""
        at_start()
        shares = self._made()
        shares.epoch = epoch
        for number, share in enumerate(shares.shares(first=start), start):
            count, records = len(share[0]), self._order.num_records(number)
            if not count:
                yield Batch(self._first_row(), 0, records)
            else:
                # Rows in order are views of what is mapped, or of what was read at once: the loop gets its own.
                fields = list(share) if self._order.shuffle else [column.clone() for column in share]
                yield Batch(self._assemble(fields), count, records)

    def records(self, epoch: int) -> list[int]:
        """What the order gives."""
        return [self._order.num_records(batch) for batch in range(self._order.num_batches)]

    def _made(self) -> Batches:
        from trek.data.batching.batches import Batches

        if self._batches is None:
            self._batches = Batches(
                self._table,
                self._order.batch_size,
                shuffle=self._order.shuffle,
                seed=self._order.seed,
                world=self._world,
                tail=self._order.tail,
                epoch=0,
            )
        return self._batches

    def _first_row(self) -> list[torch.Tensor]:
        """A stand-in, in the one batch of an epoch that may have fewer rows than there are ranks."""
        return list(self._table.head(1).to_torch().values())


def tensors_of(table: Table) -> list[torch.Tensor] | None:
    """The columns as tensors, if each is in memory in one piece, or if they are few and come from files.

    The only rows that a process may hold for itself; `TableLoader` reads all others where they are stored.
    """
    from trek.data.batching.decoded import few_rows

    whole = table._node.whole()
    if whole is None or any(whole.column(name).num_chunks > 1 for name in whole.column_names):
        whole = few_rows(table) if whole is not None or table._node.is_fixed else None
    return None if whole is None else list(type(table).of(whole).to_torch().values())
