"""`elasticai_api.common.data_shard_service`: the indices of the records that this process trains on.

Over `trek.World`: every process has an equal share of every epoch, so none waits for another at the end.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice, pairwise
from typing import NamedTuple

import torch

import trek
from trek.errors import InputError


class Shard(NamedTuple):
    """Records to train on: those from `start` to `end`, or if they are shuffled, those that `indices` names."""

    name: str
    start: int
    end: int
    indices: list[int]
    """Empty unless records are shuffled."""


class DataShardService:
    """Hands out this process's records of a data set, epoch after epoch, shuffled by a seed.

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
        self._waiting: list[Shard] = []

    def __len__(self) -> int:
        """How many records this process trains on, over all epochs."""
        return self._num_epochs * self._num_batches * self._batch_size

    @property
    def _num_batches(self) -> int:
        return -(-self._size // (self._batch_size * self._world.size))

    def fetch_shard(self) -> Shard | None:
        """The next records, at most a batch of them; None at the end."""
        _check_process()
        if not self._waiting:
            self._waiting = self._shards(list(islice(self._indices, self._batch_size)))
        return self._waiting.pop(0) if self._waiting else None

    def report_batch_done(self, batch_size: int | None = None, err_msg: str = "") -> bool:
        """Whether it ended a shard, which needs no report here: what was trained is known from the step."""
        return True

    def _shards(self, indices: list[int]) -> list[Shard]:
        if self._shuffle:
            return [Shard("", 0, len(indices), indices)] if indices else []
        # The last batch of an epoch may go on at its beginning.
        cuts = [k for k in range(1, len(indices)) if indices[k] != indices[k - 1] + 1]
        runs = [indices[a:b] for a, b in pairwise([0, *cuts, len(indices)]) if a < b]
        return [Shard("", run[0], run[-1] + 1, []) for run in runs]

    def _all(self) -> Iterator[int]:
        for epoch in range(self._num_epochs):
            generator = torch.Generator().manual_seed(self._seed + epoch)
            order = torch.randperm(self._size, generator=generator) if self._shuffle else torch.arange(self._size)
            padded = order.repeat(-(-self._num_batches * self._batch_size * self._world.size // self._size))
            steps = padded[: self._num_batches * self._batch_size * self._world.size]
            own = steps.reshape(self._num_batches, self._world.size, self._batch_size)[:, self._world.rank]
            yield from own.reshape(-1).tolist()


def _check_process() -> None:
    """A process of a DataLoader has a copy of the service, and would hand out what others have."""
    if torch.utils.data.get_worker_info() is not None:
        raise InputError("records are handed out in the training process. Use a DataLoader with num_workers=0.")


class RecordIndexService(DataShardService):
    """Records one by one, for data sets whose items are asked for by a DataLoader."""

    def fetch_record_index(self) -> int:
        """The next index; StopIteration at the end, which ends the loop of a DataLoader."""
        _check_process()
        return next(self._indices)


class ElasticIndexService(RecordIndexService):
    """The indices of a process among others that come and go: whoever is there trains those of all.

    What was given to a process that died is given to another one, and what a step did not complete is given again.
    A loader must read in the process itself (num_workers=0): a batch is complete when the next one is asked for.
    """

    def __init__(
        self, batch_size: int, num_epochs: int, dataset_size: int, shuffle: bool, *, traveler: trek.Traveler
    ) -> None:
        super().__init__(batch_size, num_epochs, dataset_size, shuffle, world=traveler.world)
        self._traveler = traveler

    def __len__(self) -> int:
        """Not known: as ElasticDL's data sets say it."""
        return sys.maxsize

    def _all(self) -> Iterator[int]:
        most = self._world.max_size
        num_filled = -(-self._size // (self._batch_size * most)) * self._batch_size * most
        rows = torch.arange(num_filled) % self._size
        data = self._traveler.add_loader((rows,), global_batch_size=self._batch_size * most, shuffle=self._shuffle)
        for _ in self._traveler.epochs(self._num_epochs):
            for (indices,) in self._traveler.train(data):
                yield from indices.tolist()


def build_data_shard_service(
    batch_size: int, num_epochs: int = 1, dataset_size: int = 0, shuffle: bool = False
) -> RecordIndexService:
    """The records of this process."""
    return RecordIndexService(batch_size, num_epochs, dataset_size, shuffle)
