"""Feed: yields the batches of a training loop from the current position, weighted and on the device.

Owns the position in the data and the matching random states. Knows nothing about models or metrics.
"""

from __future__ import annotations

import time
from collections import UserDict
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from trek.data.loaders import Loader
from trek.errors import InputError
from trek.strategies import Strategy
from trek.train.loop.portions import Portion, portions, with_global_sizes
from trek.train.loop.position import Position
from trek.world.seeds import random_state, restore_random_state


class Feed:
    """The batches from the current position on."""

    def __init__(self, strategy: Strategy, *, accumulate: int) -> None:
        self.position = Position()
        self.wait_s = 0.0
        """Seconds spent waiting for data; the reader resets it to 0."""
        self._strategy = strategy
        self._device = strategy.world.device
        self._accumulate = accumulate
        self._epoch_start: dict[str, Any] = {}
        self._resumed: Mapping[str, Any] | None = None

    def training(self, loader: Loader) -> Iterator[Portion]:
        """The rest of the current epoch. The position counts a batch once it is yielded."""
        position = self.position
        weighted = self._on_device(self._weighted(loader), loader)
        while True:
            started = time.perf_counter()
            portion = next(weighted, None)
            if portion is None:
                self._finish_resume()  # there may have been nothing left to read
                _check_not_empty(position)
                return
            self.wait_s += time.perf_counter() - started
            position.take(records=portion.global_samples, ends_group=portion.is_last)
            yield portion

    def validation(self, loader: Loader) -> Iterator[Portion]:
        """One pass, always over the same rows in the same order."""
        batches = loader.batches(0)
        if loader.num_batches is None and self._strategy.world.is_distributed:
            batches = with_global_sizes(batches, self._strategy)
        is_empty = True
        for portion in self._on_device(portions(batches, strategy=self._strategy), loader):
            is_empty = False
            yield portion
        if is_empty:
            raise InputError(
                "the validation data has no batch. Data that can be read only once, such as a generator, is empty "
                "after the first validation. Pass an object whose __iter__ starts again from the beginning."
            )

    def rank_state(self) -> dict[str, Any]:
        """The states of the random generators, now and at the start of the epoch."""
        if self._resumed is not None:  # saved before anything was read: the generators are not restored yet
            return dict(self._resumed)
        return {"random": random_state(), "epoch_start": self._epoch_start}

    def load(self, position: Mapping[str, int], rank: Mapping[str, Any] | None) -> None:
        """Resume at `position`; the generators of a rank that did not exist before start from their seed."""
        self.position.load_state_dict(dict(position))
        self._resumed = rank

    def _weighted(self, loader: Loader) -> Iterator[Portion]:
        position = self.position
        if self._resumed is not None and position.epoch_records:
            position.find_batch(loader.records(position.epoch))
        self._begin_epoch()
        batches = loader.batches(position.epoch, start=position.epoch_batch, at_start=self._finish_resume)
        if loader.num_batches is None and self._strategy.world.is_distributed:
            batches = with_global_sizes(batches, self._strategy)
        records = loader.records(position.epoch) if self._accumulate > 1 else None
        return portions(
            batches,
            strategy=self._strategy,
            accumulate=self._accumulate,
            records=records[position.epoch_batch :] if records is not None else None,
            taken=position.group_batches,
            taken_records=position.group_records,
        )

    def _on_device(self, weighted: Iterator[Portion], loader: Loader) -> Iterator[Portion]:
        if self._device.type == "cpu" or loader.is_on_device:
            return weighted
        return prefetched(weighted, self._device) if loader.is_pure else _copied_to_device(weighted, self._device)

    def _begin_epoch(self) -> None:
        """Record the random states at the start of an epoch; after a resume, restore those of the resumed epoch.

        Data that depends on the generators is then read in the same order again up to the resumed position, where
        `_finish_resume` restores the states at that position.
        """
        if self._resumed is not None:
            is_inside = self.position.epoch_batch > 0
            restore_random_state(dict(self._resumed["epoch_start" if is_inside else "random"]))
        self._epoch_start = random_state()

    def _finish_resume(self) -> None:
        """Restore the random states of the resumed position, which reading has reached."""
        if self._resumed is not None:
            restore_random_state(dict(self._resumed["random"]))
            self._resumed = None


def _check_not_empty(position: Position) -> None:
    if position.epoch_batch == 0:
        raise InputError(
            f"the training data has no batch in epoch {position.epoch + 1}. Data that can be read only once, such as a "
            "generator, ends with the first epoch. Pass an object whose __iter__ starts again from the beginning."
        )


def prefetched(weighted: Iterator[Portion], device: torch.device) -> Iterator[Portion]:
    """Copy each batch to the GPU on a separate stream, while the batch before it is in use."""
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    ready: Portion | None = None
    for portion in weighted:
        with torch.cuda.stream(stream):
            portion.data = to_device(portion.data, device)
        if ready is not None:
            yield ready
        _join(portion.data, stream)
        ready = portion
    if ready is not None:
        yield ready


def _join(data: Any, stream: torch.cuda.Stream) -> None:
    """Make the compute stream wait for the copies, and keep their memory until it has used them."""
    current = torch.cuda.current_stream(stream.device)
    current.wait_stream(stream)
    for leaf in tree_leaves(data):
        if isinstance(leaf, torch.Tensor) and leaf.is_cuda:
            leaf.record_stream(current)


def _copied_to_device(weighted: Iterator[Portion], device: torch.device) -> Iterator[Portion]:
    for portion in weighted:
        portion.data = to_device(portion.data, device)
        yield portion


def to_device(data: Any, device: torch.device) -> Any:
    """`data` with every tensor in it on `device`."""
    if device.type == "cpu":
        return data
    if type(data) in (list, tuple) and all(type(one) is torch.Tensor for one in data):  # the usual batch
        return type(data)(one.to(device, non_blocking=True) for one in data)
    return tree_map(lambda leaf: _leaf_to_device(leaf, device), data, is_leaf=_moves_itself)


def _moves_itself(leaf: Any) -> bool:
    return callable(getattr(leaf, "to", None))


def _leaf_to_device(leaf: Any, device: torch.device) -> Any:
    """Of what torch's trees do not look into, batches of other libraries move themselves, and others are made anew."""
    if isinstance(leaf, torch.Tensor):
        return leaf.to(device, non_blocking=True)
    if _moves_itself(leaf):
        return leaf.to(device)
    if isinstance(leaf, UserDict):
        moved = copy(leaf)
        moved.data = {key: to_device(value, device) for key, value in leaf.data.items()}
        return moved
    if is_dataclass(leaf) and not isinstance(leaf, type):
        other = copy(leaf)
        for field in fields(leaf):
            object.__setattr__(other, field.name, to_device(getattr(leaf, field.name), device))
        return other
    return leaf
