"""Batches of a map-style torch dataset, read in this process, or by torch's own DataLoader and its worker processes.

Which rows make a batch is decided here, ahead of reading, so that a position can be resumed without reading what came
before. In worker processes the random generators, the dataset's own included, are seeded by (seed, epoch, batch, rank):
what a random transform does to a batch does not depend on how many workers there are or where reading started. In this
process they go on from batch to batch, and a checkpoint holds their states.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import BatchSampler, Dataset, Sampler, get_worker_info
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data.dataloader import default_collate

from trek.data.batching.order import Order
from trek.data.loaders.base import Batch, Loader, do_nothing
from trek.data.loaders.kept_batches import KeptBatches
from trek.data.loaders.own_generators import Generator, find_generators, seed_generator
from trek.data.loaders.reader_state import ReaderState
from trek.errors import InputError
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
        return self.filled(torch.tensor(self.draw(epoch), dtype=torch.int64))

    def draw(self, epoch: int) -> list[int]:
        """The sampler's rows of an epoch, without those that are added to fill the last batch."""
        assert self.sampler is not None
        return _draw(self.sampler, seed=self.seed, epoch=epoch)


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
        self._sampler: Any = getattr(order, "sampler", None) if isinstance(order, Order) else order
        here = {} if self.is_pure else {"dataset": dataset, "collate_fn": self._reading.get("collate_fn")}
        self._state = ReaderState(ordering={"sampler": self._sampler}, reading=here)
        self._planned: _Plan | None = None
        self._is_keeping = False
        self._kept: tuple[int, KeptBatches] | None = None
        """The epoch that worker processes have begun to read, and what they have read."""
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
        reading = self._reading_of(plan, epoch=epoch, start=start)
        at_start()
        for planned, data in zip(plan, reading, strict=True):
            yield Batch(data, planned.num_samples, planned.global_samples)

    def records(self, epoch: int) -> list[int]:
        """What is planned."""
        return [planned.global_samples for planned in self._plan(epoch)]

    def read_from(self) -> dict[str, Any]:
        """The sampler, and what is read in this process."""
        here = {} if self.is_pure else {"dataset": self._dataset, "collate_fn": self._reading.get("collate_fn")}
        return {name: one for name, one in {"sampler": self._sampler, **here}.items() if one is not None}

    def keep_batches(self) -> bool:
        """Keep what worker processes read: they are not started twice. The sampler is asked again."""
        self._is_keeping = self.is_pure
        return False

    def give_again(self) -> None:
        """Also draw again what a sampler drew, which is put back."""
        self._is_keeping = False
        if self._planned is not None and self._planned.digest is not None:
            self._planned = None

    def _reading_of(self, plan: Sequence[PlannedBatch], *, epoch: int, start: int) -> Iterator[Any]:
        kept, self._kept = self._kept, None
        if kept is not None and kept[0] == epoch and start == 0:
            return kept[1].again()
        reading = self._read(plan, epoch=epoch, start=start)
        if not self._is_keeping or start:
            return reading
        self._kept = epoch, KeptBatches(reading)
        return self._kept[1].first()

    def _read(self, plan: Sequence[PlannedBatch], *, epoch: int, start: int) -> Iterator[Any]:
        rows = [planned.rows for planned in plan]
        # torch's iterator draws one seed from its generator, which must not be the global one.
        generator = torch.Generator().manual_seed(self._seed + epoch)
        if self._reading.get("num_workers", 0) > 0:
            seeds = [_mix(self._seed, epoch, start + i, self._world.rank) for i in range(len(rows))]
            keyed = [[(seed, row) for row in batch] for seed, batch in zip(seeds, rows, strict=True)]
            seeded = _SeededDataset(self._dataset, self._reading.get("collate_fn"))
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

    def state_dict(self) -> dict[str, Any]:
        """The states of the sampler and of what is read in this process, and a digest of what the sampler drew."""
        plan = self._planned
        drawn = {} if plan is None or plan.digest is None else {"drawn": [plan.epoch, plan.digest]}
        return {**self._state.state_dict(), **drawn}

    def order_state(self) -> dict[str, Any]:
        """The state of the sampler."""
        state = self._state.state_dict()
        return {part: state[part] for part in ("order", "variables") if part in state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the states. Rows that are drawn already must be those of the saved run."""
        self._state.load_state_dict(state)
        epoch, digest = state.get("drawn", (None, None))
        if self._planned is not None and self._planned.epoch == epoch and self._planned.digest != digest:
            raise InputError(
                f"the sampler {type(self._sampler).__name__} drew other rows for epoch {epoch + 1} than in the "
                "saved run, so this run cannot be resumed inside that epoch. Let the sampler draw from a generator "
                "that it keeps as an attribute, or resume from a checkpoint at the end of an epoch."
            )

    def _plan(self, epoch: int) -> list[PlannedBatch]:
        """What is read in `epoch`: drawn once, because a sampler with its own generator draws other rows every time."""
        if self._planned is None or self._planned.epoch != epoch:
            self._planned = self._draw_plan(epoch)
        return self._planned.batches

    def _draw_plan(self, epoch: int) -> _Plan:
        order = self._order
        if isinstance(order, SamplerOrder):
            drawn = order.draw(epoch)
            rows = order.filled(torch.tensor(drawn, dtype=torch.int64))
            return _Plan(epoch, _plan_order(order, rows.tolist(), self._world), _digest(drawn))
        if isinstance(order, Order):
            return _Plan(epoch, _plan_order(order, order.rows(epoch).tolist(), self._world), None)
        batches = _draw(order, seed=self._seed, epoch=epoch)
        return _Plan(epoch, _plan_batches(batches, self._world), _digest(batches))


@dataclass(frozen=True)
class _Plan:
    epoch: int
    batches: list[PlannedBatch]
    digest: str | None
    """Of what a sampler drew."""


class _SeededDataset(Dataset[Any]):
    """Seeds the generators of a worker process, and those of the dataset, before it reads a batch."""

    def __init__(self, dataset: Dataset[Any], collate_fn: Any) -> None:
        self.dataset = dataset
        self._collate_fn = collate_fn
        self._generators: list[Generator] | None = None

    def __getitems__(self, keyed_rows: list[tuple[int, int]]) -> list[Any]:
        seed = keyed_rows[0][0]
        if self._generators is None:
            roots = {"dataset": self.dataset, "collate_fn": self._collate_fn}
            self._generators = list(find_generators(roots).values())
        for generator in self._generators:
            seed_generator(generator, seed)
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


def _plan_order(order: Order, rows: list[int], world: World) -> list[PlannedBatch]:
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


def _digest(drawn: list[Any]) -> str | None:
    """Identifies rows, or batches of rows, in their order; None for keys that are not whole numbers."""
    batches = drawn if drawn and isinstance(drawn[0], list | tuple) else [drawn]
    try:
        parts = [np.array([len(batch), *batch], dtype=np.int64).tobytes() for batch in batches]
    except (TypeError, ValueError, OverflowError):
        return None
    return hashlib.sha256(b"".join(parts)).hexdigest()


def _mix(*parts: int) -> int:
    """One 63-bit seed from several numbers, well spread."""
    return int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0] >> np.uint64(1))
