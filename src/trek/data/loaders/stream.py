"""Batches of anything that can be iterated: the batches are taken as they come.

What is iterated does not know its rank, so in a World of several each rank takes every size-th batch, unless the caller
says that the stream is sharded already. Resuming reads and drops what came before. When gradients are accumulated, the
batches of one step are read together, since only reading tells how large they are; so a stream that draws random
numbers for every batch resumes exactly between steps, but not within one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from trek.data.loaders.base import Batch, Loader, count_samples, do_nothing
from trek.world import World


class StreamLoader(Loader):
    """Batches taken from an iterable."""

    def __init__(
        self, batches: Iterable[Any], *, world: World, is_sharded: bool = False, batch_records: int | None = None
    ) -> None:
        """`batch_records` are the records of a global batch; by default, every rank takes a batch of the stream."""
        self._source = batches
        self._world = world
        self._is_sharded = is_sharded
        self.num_batches = self._known_length()
        own_size = getattr(batches, "batch_size", None)
        self.batch_records = batch_records or (own_size * world.size if isinstance(own_size, int) else None)

    def batches(self, epoch: int, *, start: int = 0, at_start: Callable[[], None] = do_nothing) -> Iterator[Batch]:
        """Every size-th batch of the stream, from this rank's `start`-th on."""
        if hasattr(self._source, "set_epoch"):
            self._source.set_epoch(epoch)
        step = 1 if self._is_sharded else self._world.size
        offset = 0 if self._is_sharded else self._world.rank
        stream = iter(self._source)
        deque(islice(stream, start * step), maxlen=0)
        at_start()
        for data in islice(stream, offset, None, step):
            samples = count_samples(data)
            yield Batch(data, samples, None if self._world.is_distributed else samples)

    def _known_length(self) -> int | None:
        # Ranks may hold different numbers of batches, so a length is only known to a rank that is alone.
        if self._world.is_distributed:
            return None
        try:
            return len(self._source)  # type: ignore[arg-type]
        except TypeError:
            return None
