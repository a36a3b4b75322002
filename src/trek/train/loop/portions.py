"""Portions: the weight of each batch, so that the gradient of a step is exactly the mean over its samples.

Knows how batches are grouped for accumulation, and how ranks stay in step if their streams end at different times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice, repeat
from typing import Any

import torch

from trek.data.loaders import Batch
from trek.data.loaders.base import do_nothing
from trek.errors import InputError
from trek.strategies import Strategy


@dataclass(slots=True)
class Portion:
    """One batch with its weight in a step."""

    data: Any
    num_samples: int
    global_samples: int
    weight: float
    """The factor of its mean loss."""
    is_last: bool
    """Whether the optimizer steps after it."""
    group_samples: int
    """Samples of its step over all ranks and accumulated batches."""
    logical: int = 0
    """Whose share of the batch this is; see `logical_workers`. Elsewhere a process has one share of each batch."""
    begins_batch: bool = True
    ends_batch: bool = True
    ends_group: bool = True
    """Whether the optimizer steps after this batch, be it after this share or a later one."""


@dataclass(frozen=True)
class Taken:
    """The batches of a step that were trained before a resume, and the records of that step in all."""

    batches: int = 0
    records: int = 0
    total: int = 0

    def check(self, *, records: int, total: int) -> None:
        """Raise InputError unless the step has as many records as when its first batches were trained."""
        # Checkpoints of older versions do not say the total.
        if self.batches and (records != self.records or total != (self.total or total)):
            raise InputError(
                f"this run was saved after {self.records} of the {self.total} records whose gradients make one step; "
                f"now that step would have {total}. Resume with the accumulate and the batch size of the saved run, or "
                "from a checkpoint between two steps."
            )


_NOTHING_TAKEN = Taken()


def portions(
    batches: Iterator[Batch],
    *,
    strategy: Strategy,
    accumulate: int = 1,
    records: list[int] | None = None,
    taken: Taken = _NOTHING_TAKEN,
    on_group: Callable[[], None] = do_nothing,
    on_reread: Callable[[], None] = do_nothing,
) -> Iterator[Portion]:
    """Weight each batch by its share of the samples of its group: `accumulate` batches, fewer at the end of the data.

    `records` are the global sizes of the batches; without them, a whole group is read first to get its sizes, and
    `on_group` is called before. After a resume inside a group, `taken` batches of it were trained: those are not in
    `records`; without `records` they are read again with the rest of their group, and `on_reread` is called then.
    """
    if accumulate == 1:  # the common case, kept free of grouping
        taken.check(records=0, total=0)
        for batch in batches:
            size = _global_size(batch)
            yield Portion(
                batch.data, batch.num_samples, size, strategy.loss_weight(batch.num_samples, size), True, size
            )
        return
    groups = _planned_groups(batches, records, accumulate, taken) if records is not None else None
    for group in groups or _read_groups(batches, accumulate, taken, on_group, on_reread):
        for index, batch in enumerate(group.batches, start=1):
            weight = strategy.loss_weight(batch.num_samples, group.total)
            is_last = index == group.count
            yield Portion(batch.data, batch.num_samples, _global_size(batch), weight, is_last, group.total)


@dataclass(frozen=True)
class _Group:
    """The batches of one step that are still to be trained, and the samples of the whole step."""

    batches: Iterable[Batch]
    count: int
    total: int


def _planned_groups(batches: Iterator[Batch], records: list[int], accumulate: int, taken: Taken) -> Iterator[_Group]:
    sizes = iter(records)
    while group_sizes := list(islice(sizes, accumulate - taken.batches if accumulate > taken.batches else 0)):
        total = taken.records + sum(group_sizes)
        taken.check(records=taken.records, total=total)
        yield _Group(islice(batches, len(group_sizes)), len(group_sizes), total)
        taken = _NOTHING_TAKEN
    taken.check(records=0, total=0)


def _read_groups(
    batches: Iterator[Batch],
    accumulate: int,
    taken: Taken,
    on_group: Callable[[], None],
    on_reread: Callable[[], None],
) -> Iterator[_Group]:
    while True:
        on_group()
        group = list(islice(batches, accumulate))
        sizes = [_global_size(batch) for batch in group]
        taken.check(records=sum(sizes[: taken.batches]), total=sum(sizes))
        if taken.batches:
            on_reread()
        if not group:
            return
        yield _Group(group[taken.batches :], len(group) - taken.batches, sum(sizes))
        taken = _NOTHING_TAKEN


def read_ahead(weighted: Iterator[Portion], on_next: Callable[[Any], None]) -> Iterator[Portion]:
    """The same portions, each yielded when the next one is read and `on_next` was called with its data."""
    current = next(weighted, None)
    while current is not None:
        following = next(weighted, None)
        if following is not None:
            on_next(following.data)
        yield current
        current = following


def with_global_sizes(
    batches: Iterator[Batch], strategy: Strategy, *, find_stand_in: Callable[[], Batch | None] = lambda: None
) -> Iterator[Batch]:
    """The batches of a stream with their global sizes, which the ranks exchange, until no rank has a batch.

    A rank whose stream has ended repeats its last batch as a stand-in, so that collectives stay in step; the one that
    `find_stand_in` gives, if it has read none since a resume.
    """
    stand_in: Batch | None = None
    for batch in chain(batches, repeat(None)):
        num_samples = batch.num_samples if batch else 0
        total = int(strategy.reduce(torch.tensor([num_samples]))[0])
        if total == 0:
            return
        current = batch or stand_in or find_stand_in()
        if current is None:
            raise InputError(
                f"rank {strategy.world.rank} has no batch, but other ranks do. Every process needs at least one batch: "
                "provide more data, or use fewer processes."
            )
        yield Batch(current.data, num_samples, total)
        stand_in = current


def _global_size(batch: Batch) -> int:
    assert batch.global_samples is not None
    return batch.global_samples
