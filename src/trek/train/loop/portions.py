"""Portions: the weight of each batch, so that the gradient of a step is exactly the mean over its samples.

Knows how batches are grouped for accumulation, and how ranks stay in step if their streams end at different times.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice, repeat
from typing import Any

import torch

from trek.data.loaders import Batch
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


def portions(
    batches: Iterator[Batch],
    *,
    strategy: Strategy,
    accumulate: int = 1,
    records: list[int] | None = None,
    taken: int = 0,
    taken_records: int = 0,
) -> Iterator[Portion]:
    """Weight each batch by its share of the samples of its group: `accumulate` batches, fewer at the end of the data.

    `records` are the global sizes of the batches; without them, a whole group is read first to get its sizes. `taken`
    batches with `taken_records` records of the first group were already trained before a resume.
    """
    if accumulate == 1:  # the common case, kept free of grouping
        for batch in batches:
            weight = strategy.loss_weight(batch.num_samples, _global_size(batch))
            yield Portion(batch.data, batch.num_samples, _global_size(batch), weight, True)
        return
    sizes = iter(records) if records is not None else None
    while True:
        count = accumulate - taken
        group = list(islice(batches, count)) if sizes is None else None
        group_sizes = (
            [_global_size(batch) for batch in group] if group is not None else list(islice(sizes or (), count))
        )
        if not group_sizes:
            return
        total = taken_records + sum(group_sizes)
        for index, batch in enumerate(group if group is not None else islice(batches, len(group_sizes)), start=1):
            weight = strategy.loss_weight(batch.num_samples, total)
            yield Portion(batch.data, batch.num_samples, _global_size(batch), weight, index == len(group_sizes))
        taken = taken_records = 0


def with_global_sizes(batches: Iterator[Batch], strategy: Strategy) -> Iterator[Batch]:
    """The batches of a stream with their global sizes, which the ranks exchange, until no rank has a batch.

    A rank whose stream has ended repeats its last batch as a stand-in, so that collectives stay in step.
    """
    stand_in: Batch | None = None
    for batch in chain(batches, repeat(None)):
        num_samples = batch.num_samples if batch else 0
        total = int(strategy.reduce(torch.tensor([num_samples]))[0])
        if total == 0:
            return
        current = batch or stand_in
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
