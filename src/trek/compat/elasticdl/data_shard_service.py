"""`elasticai_api.common.data_shard_service`: the indices of the records that this process trains on.

Over `trek.World`: every process has an equal share of every epoch, so none waits for another at the end.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

import trek
from trek.errors import InputError


class RecordIndexService:
    """Hands out this process's indices of a data set, epoch after epoch, shuffled by a seed.

    An epoch is filled up to whole global batches with records from its beginning, so that every process makes the same
    number of steps and no record is left out.
    """

    def __init__(
        self,
        batch_size: int,
        num_epochs: int = 1,
        dataset_size: int = 0,
        shuffle: bool = False,
        *,
        seed: int = 0,
        world: trek.World | None = None,
    ) -> None:
        for name, value in (("batch_size", batch_size), ("num_epochs", num_epochs), ("dataset_size", dataset_size)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InputError(f"{name} must be a whole number of at least 1, got {value!r}.")
        self._world = world or trek.World.from_env()
        self._batch_size, self._num_epochs, self._size = batch_size, num_epochs, dataset_size
        self._shuffle, self._seed = shuffle, seed
        self._indices = self._all()

    def __len__(self) -> int:
        """How many records this process trains on, over all epochs."""
        return self._num_epochs * self._num_batches * self._batch_size

    @property
    def _num_batches(self) -> int:
        return -(-self._size // (self._batch_size * self._world.size))

    def fetch_record_index(self) -> int:
        """The next index; StopIteration at the end, which ends the loop of a DataLoader."""
        return next(self._indices)

    def _all(self) -> Iterator[int]:
        for epoch in range(self._num_epochs):
            generator = torch.Generator().manual_seed(self._seed + epoch)
            order = torch.randperm(self._size, generator=generator) if self._shuffle else torch.arange(self._size)
            padded = order.repeat(-(-self._num_batches * self._batch_size * self._world.size // self._size))
            steps = padded[: self._num_batches * self._batch_size * self._world.size]
            own = steps.reshape(self._num_batches, self._world.size, self._batch_size)[:, self._world.rank]
            yield from own.reshape(-1).tolist()


def build_data_shard_service(
    batch_size: int, num_epochs: int = 1, dataset_size: int = 0, shuffle: bool = False
) -> RecordIndexService:
    """The indices of this process."""
    return RecordIndexService(batch_size, num_epochs, dataset_size, shuffle)
