"""Feed: hands a training loop its batches, on the device, weighed, from where the run stands.

Owns the position in the data and the random states that go with it. Knows nothing of models or metrics.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from trek.data.loaders import Loader
from trek.errors import InputError
from trek.strategies import Strategy
from trek.train.loop.portions import Portion, agreed, portions
from trek.train.loop.position import Position
from trek.world.seeds import random_state, restore_random_state


class Feed:
    """Batches from where the run stands."""

    def __init__(self, strategy: Strategy, *, accumulate: int) -> None:
        self.position = Position()
        self.wait_s = 0.0
        """Seconds spent waiting for data since somebody set it to 0."""
        self._strategy = strategy
        self._device = strategy.world.device
        self._accumulate = accumulate
        self._epoch_start: dict[str, Any] = {}
        self._resumed: Mapping[str, Any] | None = None

    def training(self, loader: Loader) -> Iterator[Portion]:
        """The rest of the current epoch. The position counts a batch once it is handed out."""
        position = self.position
        weighed = self._on_device(self._weighed(loader), loader)
        while True:
            asked = time.perf_counter()
            portion = next(weighed, None)
            if portion is None:
                self._arrive()  # nothing may have been left to read
                _check_not_empty(position)
                return
            self.wait_s += time.perf_counter() - asked
            position.take(records=portion.global_samples, ends_group=portion.is_last)
            yield portion

    def validation(self, loader: Loader) -> Iterator[Portion]:
        """One pass, always over the same rows in the same order."""
        batches = loader.batches(0)
        if loader.num_batches is None and self._strategy.world.is_distributed:
            batches = agreed(batches, self._strategy)
        yield from self._on_device(portions(batches, strategy=self._strategy), loader)

    def rank_state(self) -> dict[str, Any]:
        """The random generators now, and at the start of the epoch."""
        if self._resumed is not None:  # saved again before anything was read: the generators are yet to be put back
            return dict(self._resumed)
        return {"random": random_state(), "epoch_start": self._epoch_start}

    def load(self, position: Mapping[str, int], rank: Mapping[str, Any] | None) -> None:
        """Go on from `position`; the generators of a rank that did not exist before start from their seed."""
        self.position.load_state_dict(dict(position))
        self._resumed = rank

    def _weighed(self, loader: Loader) -> Iterator[Portion]:
        position = self.position
        if self._resumed is not None and position.epoch_records:
            position.find_batch(loader.records(position.epoch))
        self._begin_epoch()
        batches = loader.batches(position.epoch, start=position.epoch_batch, at_start=self._arrive)
        if loader.num_batches is None and self._strategy.world.is_distributed:
            batches = agreed(batches, self._strategy)
        records = loader.records(position.epoch) if self._accumulate > 1 else None
        return portions(
            batches,
            strategy=self._strategy,
            accumulate=self._accumulate,
            records=records[position.epoch_batch :] if records is not None else None,
            taken=position.group_batches,
            taken_records=position.group_records,
        )

    def _on_device(self, weighed: Iterator[Portion], loader: Loader) -> Iterator[Portion]:
        if self._device.type == "cpu" or loader.is_on_device:
            return weighed
        return copied_ahead(weighed, self._device) if loader.is_pure else _copied(weighed, self._device)

    def _begin_epoch(self) -> None:
        """Note the random states an epoch starts from; after a resume, go back to them.

        Reading up to where the run stood then draws what it drew before, so that data which depends on the generators
        comes in the same order again; `_arrive` puts them to where the run stood.
        """
        if self._resumed is not None:
            is_inside = self.position.epoch_batch > 0
            restore_random_state(dict(self._resumed["epoch_start" if is_inside else "random"]))
        self._epoch_start = random_state()

    def _arrive(self) -> None:
        """Reading stands where the run stands."""
        if self._resumed is not None:
            restore_random_state(dict(self._resumed["random"]))
            self._resumed = None


def _check_not_empty(position: Position) -> None:
    if position.epoch_batch == 0:
        raise InputError(
            f"the training data gave no batch in epoch {position.epoch + 1}. Data that can be read only once, such as "
            "a generator, ends with its first epoch: give an object whose __iter__ starts anew."
        )


def copied_ahead(weighed: Iterator[Portion], device: torch.device) -> Iterator[Portion]:
    """Copy each batch to the GPU while the one before is computed on, on a stream of its own."""
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    waiting: Portion | None = None
    for portion in weighed:
        with torch.cuda.stream(stream):
            portion.data = to_device(portion.data, device)
        if waiting is not None:
            yield waiting
        _join(portion.data, stream)
        waiting = portion
    if waiting is not None:
        yield waiting


def _join(data: Any, stream: torch.cuda.Stream) -> None:
    """Let the computing stream wait for the copies, and keep their memory until it has used them."""
    current = torch.cuda.current_stream(stream.device)
    current.wait_stream(stream)
    for leaf in tree_leaves(data):
        if isinstance(leaf, torch.Tensor) and leaf.is_cuda:
            leaf.record_stream(current)


def _copied(weighed: Iterator[Portion], device: torch.device) -> Iterator[Portion]:
    for portion in weighed:
        portion.data = to_device(portion.data, device)
        yield portion


def to_device(data: Any, device: torch.device) -> Any:
    """`data` with every tensor in it on `device`."""
    if device.type == "cpu":
        return data
    if type(data) in (list, tuple) and all(type(one) is torch.Tensor for one in data):  # the usual batch
        return type(data)(one.to(device, non_blocking=True) for one in data)
    return tree_map_only(torch.Tensor, lambda tensor: tensor.to(device, non_blocking=True), data)
