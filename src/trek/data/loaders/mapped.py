"""Batches of a map-style torch dataset, read in this process, or by torch's own DataLoader and its worker processes.

Which rows make a batch is decided here, ahead of reading, so that a position can be resumed without reading what came
before. In worker processes the random generators are seeded by (seed, epoch, batch, rank): what a random transform does
to a batch does not depend on how many workers there are or where reading started.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import BatchSampler, Dataset, Sampler, get_worker_info
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data.dataloader import default_collate

from trek.data.batching.order import Order
from trek.data.loaders.base import Batch, Loader, do_nothing
from trek.world import World
from trek.world.seeds import random_state, restore_random_state, seed_everything


@dataclass(frozen=True)
class PlannedBatch:
    """Rows of one batch of one rank, before they are read."""

    rows: list[int]
    num_samples: int
    global_samples: int


@dataclass(frozen=True)
class SamplerOrder(Order):
    """The order a torch Sampler draws, the same on every rank: it draws from generators seeded by seed and epoch."""

    sampler: Sampler[int] | None = None

    def rows(self, epoch: int) -> torch.Tensor:
        """The sampler's rows of an epoch."""
        assert self.sampler is not None
        return self.filled(torch.tensor(_draw(self.sampler, seed=self.seed, epoch=epoch), dtype=torch.int64))


class MappedLoader(Loader):
    """A map-style dataset, read as torch's DataLoader reads it."""

    def __init__(
        self,
        dataset: Dataset[Any],
        *,
        order: Order | BatchSampler,
        world: World,
        seed: int,
        reading: dict[str, Any] | None = None,
    ) -> None:
        self._dataset = dataset
        self._order = order
        self._world = world
        self._seed = seed
        self._reading = dict(reading or {})
        self.is_pure = self._reading.get("num_workers", 0) > 0
        if isinstance(order, Order):
            self.num_batches = order.num_batches
            self.batch_records = order.batch_size
        else:
            self.num_batches = -(-len(order) // world.size)
            self.batch_records = getattr(order, "batch_size", None)
            self.batch_records = self.batch_records * world.size if self.batch_records else None

    def batches(self, epoch: int, *, start: int = 0, at_start: Callable[[], None] = do_nothing) -> Iterator[Batch]:
        """Read the planned batches from `start` on."""
        plan = self._plan(epoch)[start:]
        reading = self._read(plan, epoch=epoch, start=start)
        at_start()
        for planned, data in zip(plan, reading, strict=True):
            yield Batch(data, planned.num_samples, planned.global_samples)

    def records(self, epoch: int) -> list[int]:
        """What is planned."""
        return [planned.global_samples for planned in self._plan(epoch)]

    def _read(self, plan: Sequence[PlannedBatch], *, epoch: int, start: int) -> Iterator[Any]:
        rows = [planned.rows for planned in plan]
        # torch's iterator draws one seed from its generator, which must not be the global one.
        generator = torch.Generator().manual_seed(self._seed + epoch)
        if self._reading.get("num_workers", 0) > 0:
            seeds = [_mix(self._seed, epoch, start + i, self._world.rank) for i in range(len(rows))]
            keyed = [[(seed, row) for row in batch] for seed, batch in zip(seeds, rows, strict=True)]
            seeded = _SeededDataset(self._dataset)
            reading = {**self._reading, "worker_init_fn": _WorkerInit(self._reading.get("worker_init_fn"))}
            return iter(TorchDataLoader(seeded, batch_sampler=keyed, generator=generator, **reading))
        # In this process random transforms draw from the process's own generators, which checkpoints restore.
        if self._reading.get("pin_memory"):
            return iter(TorchDataLoader(self._dataset, batch_sampler=rows, generator=generator, **self._reading))
        return self._read_here(rows)

    def _read_here(self, batches: list[list[int]]) -> Iterator[Any]:
        """What torch's iterator does in one process, without its work around every batch."""
        collate = self._reading.get("collate_fn") or default_collate
        for rows in batches:
            yield collate(_fetch(self._dataset, rows))

    def _plan(self, epoch: int) -> list[PlannedBatch]:
        if isinstance(self._order, Order):
            return _plan_order(self._order, epoch, self._world)
        return _plan_batches(_draw(self._order, seed=self._seed, epoch=epoch), self._world)


class _SeededDataset(Dataset[Any]):
    """Seeds the generators of a worker process before it reads a batch."""

    def __init__(self, dataset: Dataset[Any]) -> None:
        self.dataset = dataset

    def __getitems__(self, keyed_rows: list[tuple[int, int]]) -> list[Any]:
        seed = keyed_rows[0][0]
        random.seed(seed)
        np.random.seed(seed % 2**32)
        torch.manual_seed(seed)
        return _fetch(self.dataset, [row for _, row in keyed_rows])


@dataclass(frozen=True)
class _WorkerInit:
    """Begins a worker process as the user expects it: `get_worker_info().dataset` is their dataset."""

    init_fn: Callable[[int], None] | None

    def __call__(self, worker_id: int) -> None:
        info: Any = get_worker_info()
        object.__setattr__(info, "dataset", info.dataset.dataset)  # torch's object is read-only
        if self.init_fn is not None:
            self.init_fn(worker_id)


def _fetch(dataset: Dataset[Any], rows: list[int]) -> list[Any]:
    many: Callable[[list[int]], list[Any]] | None = getattr(dataset, "__getitems__", None)
    return many(rows) if many else [dataset[row] for row in rows]


def _plan_order(order: Order, epoch: int, world: World) -> list[PlannedBatch]:
    rows: list[int] = order.rows(epoch).tolist()
    plan = []
    for batch in range(order.num_batches):
        first, count = batch * order.batch_size, order.num_records(batch)
        mine = rows[first + world.rank : first + count : world.size]
        plan.append(PlannedBatch(mine or rows[first : first + 1], len(mine), count))
    return plan


def _plan_batches(batches: list[list[int]], world: World) -> list[PlannedBatch]:
    """Each rank takes one of `size` consecutive batches of a BatchSampler; together they are one global batch."""
    plan = []
    for first in range(0, len(batches), world.size):
        group = batches[first : first + world.size]
        total = sum(len(batch) for batch in group)
        mine = group[world.rank] if world.rank < len(group) else []
        plan.append(PlannedBatch(list(mine) or list(group[0][:1]), len(mine), total))
    return plan


def _draw(sampler: Any, *, seed: int, epoch: int) -> list[Any]:
    """What `sampler` draws for `epoch`, whatever it drew before and whichever generator it draws from."""
    inner: Any = getattr(sampler, "sampler", None)
    for one in (sampler, inner):
        if hasattr(one, "set_epoch"):
            one.set_epoch(epoch)
        if isinstance(generator := getattr(one, "generator", None), torch.Generator):
            generator.manual_seed(seed + epoch)
    before = random_state()
    try:
        seed_everything(seed + epoch)
        return list(sampler)
    finally:
        restore_random_state(before)


def _mix(*parts: int) -> int:
    """One 63-bit seed from several numbers, well spread."""
    return int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0] >> np.uint64(1))
