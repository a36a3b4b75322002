"""BatchDataset: Batches as torch's DataLoader reads them, in this process or in its worker processes.

A worker has a copy of the Batches, and the original never learns how far it came. So the passes are counted in memory
that all of them share: each pass is one epoch further, and the first one begins where the Batches were to begin.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import IterableDataset, get_worker_info

if TYPE_CHECKING:
    from trek.data.batching.batches import Batches
    from trek.data.batching.columns import Columns

_NUM_REMEMBERED = 64  # passes that go on at the same time, each by its own iterator over the loader


class BatchDataset(IterableDataset[tuple[torch.Tensor, ...]]):
    """Batches as torch's DataLoader wants them. Its worker w of n makes batches w, w + n, …, so their order stays."""

    def __init__(self, batches: Batches) -> None:
        self.batches = batches
        self._passes = _Passes()
        self._num_own_passes = 0

    def __iter__(self) -> Iterator[Columns]:
        worker = get_worker_info()
        if worker is None:
            yield from self.batches
            return
        # One seed is drawn for each iterator over the loader; workers that stay get no new one for the next.
        number = self._passes.number(worker.seed - worker.id, self._num_own_passes, start=self.batches.start)
        self._num_own_passes += 1
        yield from self.batches.pass_of(number, first=worker.id, every=worker.num_workers)

    def __len__(self) -> int:
        return len(self.batches)


class _Passes:
    """Numbers the passes since the Batches were given their place to begin; every worker gets the same number."""

    def __init__(self) -> None:
        # the place to begin (epoch, batch), the next number, and then pairs: an iterator's seed and its first number
        self._shared: Any = multiprocessing.Array("q", [-1, -1, 0] + [0, -1] * _NUM_REMEMBERED)

    def number(self, seed: int, num_own: int, *, start: tuple[int, int]) -> int:
        """The number of the pass that the iterator with `seed` makes after `num_own` others."""
        with self._shared.get_lock():
            if tuple(self._shared[:2]) != start:
                self._shared[:] = [*start, 0] + [0, -1] * _NUM_REMEMBERED
            number = self._first(seed) + num_own
            self._shared[2] = max(self._shared[2], number + 1)
            return number

    def _first(self, seed: int) -> int:
        for place in range(3, len(self._shared), 2):
            if self._shared[place] == seed and self._shared[place + 1] >= 0:
                return int(self._shared[place + 1])
        first = int(self._shared[2])
        place = 3 + 2 * (first % _NUM_REMEMBERED)
        self._shared[place : place + 2] = [seed, first]
        return first
