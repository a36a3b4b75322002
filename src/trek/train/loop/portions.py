"""Portions: what each batch counts for, so that a step's gradient is the mean over its samples and no other.

Knows how batches are grouped for accumulation, and how ranks whose streams end at different times stay in step.
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
    """One batch in the caller's hands."""

    data: Any
    num_samples: int
    global_samples: int
    weight: float
    """What its mean loss is multiplied with."""
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
    """Weigh each batch by its samples among all of its group: `accumulate` batches, fewer at the end of the data.

    `records` are the global sizes of the coming batches; without them a group is read together to learn them. `taken`
    batches with `taken_records` of the first group were handed out before a resume.
    """
    if accumulate == 1:  # the common case, without a group around every batch
        for batch in batches:
            weight = strategy.loss_weight(batch.num_samples, _known(batch))
            yield Portion(batch.data, batch.num_samples, _known(batch), weight, True)
        return
    sizes = iter(records) if records is not None else None
    while True:
        count = accumulate - taken
        group = list(islice(batches, count)) if sizes is None else None
        coming = [_known(batch) for batch in group] if group is not None else list(islice(sizes or (), count))
        if not coming:
            return
        total = taken_records + sum(coming)
        for index, batch in enumerate(group if group is not None else islice(batches, len(coming)), start=1):
            weight = strategy.loss_weight(batch.num_samples, total)
            yield Portion(batch.data, batch.num_samples, _known(batch), weight, index == len(coming))
        taken = taken_records = 0


def agreed(batches: Iterator[Batch], strategy: Strategy) -> Iterator[Batch]:
    """Batches of a stream with their global size: ranks tell each other what they hold, until none holds any.

    A rank whose stream has ended repeats its last batch as a stand-in, so that collectives stay in step.
    """
    stand_in: Batch | None = None
    for batch in chain(batches, repeat(None)):
        num_samples = batch.num_samples if batch else 0
        total = int(strategy.reduce(torch.tensor([num_samples]))[0])
        if total == 0:
            return
        held = batch or stand_in
        if held is None:
            raise InputError(
                f"rank {strategy.world.rank} got no batch at all while others did, so it cannot train along. "
                "Give every process at least one batch, or use fewer processes."
            )
        yield Batch(held.data, num_samples, total)
        stand_in = held


def _known(batch: Batch) -> int:
    assert batch.global_samples is not None
    return batch.global_samples
