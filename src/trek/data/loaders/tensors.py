"""Batches of data that is in memory: one gather for many batches, then slices, never a sample at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from trek.data.batching.order import Order
from trek.data.loaders.base import Batch, Loader, do_nothing
from trek.errors import InputError
from trek.world import World

# Gathering several batches at once spreads the cost of the call; more than this no longer fits a core's cache.
_CHUNK_BYTES = 1 << 20


class TensorLoader(Loader):
    """Tensors that share their first dimension, in the order `order` gives them.

    A batch is a copy, so a training loop may change it in place. With a CUDA world the tensors are moved to the device
    once when `on_device` is true, and batches are gathered there.
    """

    is_pure = True

    def __init__(
        self,
        tensors: Sequence[torch.Tensor],
        *,
        order: Order,
        world: World,
        assemble: Callable[[Sequence[torch.Tensor]], Any] = list,
        on_device: bool = False,
    ) -> None:
        lengths = {len(t) for t in tensors}
        if len(lengths) != 1:
            raise InputError(f"tensors of one data set must have the same length, got {sorted(lengths)}.")
        self._tensors = [t.to(world.device) if on_device else t for t in tensors]
        self.is_on_device = on_device
        self._order = order
        self._world = world
        self._assemble = assemble
        self.num_batches = order.num_batches
        self.batch_records = order.batch_size

    def batches(self, epoch: int, *, start: int = 0, at_start: Callable[[], None] = do_nothing) -> Iterator[Batch]:
        """Slices of chunks gathered in the epoch's order."""
        at_start()
        share = self._share_size(0)
        last = self._order.num_batches
        num_full = last if self._share_size(last - 1) == share and self._is_full(last - 1) else last - 1
        rows = self._rows(epoch, num_full=num_full)
        chunk = self._batches_per_chunk(share)
        for first in range(start, num_full, chunk):
            count = min(chunk, num_full - first)
            parts = self._gather(rows, first * share, count * share)
            columns = [torch.split(part, share) for part in parts]
            global_samples = self._order.batch_size
            for fields in zip(*columns, strict=True):
                yield Batch(self._assemble(fields), share, global_samples)
        if num_full < last and start <= num_full:
            yield self._tail(epoch)

    def records(self, epoch: int) -> list[int]:
        """What the order gives."""
        return [self._order.num_records(batch) for batch in range(self._order.num_batches)]

    def _share_size(self, batch: int) -> int:
        records = self._order.num_records(batch)
        return len(range(self._world.rank, records, self._world.size))

    def _is_full(self, batch: int) -> bool:
        return self._order.num_records(batch) == self._order.batch_size

    def _batches_per_chunk(self, share: int) -> int:
        row_bytes = sum(t[:1].nbytes for t in self._tensors)
        return max(1, _CHUNK_BYTES // max(1, row_bytes * share))

    def _rows(self, epoch: int, *, num_full: int) -> torch.Tensor | None:
        """This rank's rows of the full batches, one after another; None when they are simply all rows in order."""
        if not self._order.shuffle and self._world.size == 1 and self._order.tail != "pad":
            return None
        rows = self._order.rows(epoch)[: num_full * self._order.batch_size]
        mine = rows.view(num_full, self._order.batch_size)[:, self._world.rank :: self._world.size]
        return mine.reshape(-1).to(self._tensors[0].device)

    def _gather(self, rows: torch.Tensor | None, start: int, count: int) -> list[torch.Tensor]:
        if rows is None:
            return [t[start : start + count].clone() for t in self._tensors]
        chosen = rows[start : start + count]
        return [t.index_select(0, chosen) for t in self._tensors]

    def _tail(self, epoch: int) -> Batch:
        """The short last batch; a rank without a row of it repeats its first row as a stand-in."""
        last = self._order.num_batches - 1
        order_rows = self._order.rows(epoch)
        rows = self._order.share(order_rows, last, rank=self._world.rank, size=self._world.size)
        num_samples = len(rows)
        if not num_samples:
            rows = self._order.share(order_rows, last, rank=0, size=self._world.size)[:1]
        fields = [t.index_select(0, rows.to(t.device)) for t in self._tensors]
        return Batch(self._assemble(fields), num_samples, self._order.num_records(last))
