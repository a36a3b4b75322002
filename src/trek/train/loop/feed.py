"""Feed: yields the batches of a training loop from the current position, weighted and on the device.

Owns the position in the data and the matching random states. Knows nothing about models or metrics.
"""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from trek.data.loaders import Batch, Loader
from trek.data.loaders.base import Place
from trek.errors import InputError
from trek.strategies import Strategy
from trek.train.loop.data_wait import DataWait
from trek.train.loop.logical_workers import LogicalWorkers, shares
from trek.train.loop.portions import Portion, Taken, portions, read_ahead, with_global_sizes
from trek.train.loop.position import Position
from trek.world.devices import choose_device
from trek.world.seeds import random_state, restore_random_state


class Feed:
    """The batches from the current position on."""

    def __init__(self, strategy: Strategy, *, accumulate: int, wait: DataWait | None = None) -> None:
        self.position = Position()
        self._wait = wait or DataWait()
        self._taken_wait_s = 0.0
        self.on_next: Callable[[Any], None] | None = None
        """Called with a batch before the one before it is trained, where reading ahead changes nothing."""
        self._strategy = strategy
        self._device = strategy.world.device
        self._accumulate = accumulate
        self._loader: Loader | None = None
        self._own_records = 0
        """Records that this rank has read: of the current epoch, and of the current group."""
        self._own_group_records = 0
        self._loop_start: dict[str, Any] = {}
        self._epoch_start: dict[str, Any] = {}
        self._group_start: dict[str, Any] = {}
        self._reads_groups = False
        """Whether the batches of a step are read together, because only reading tells their sizes."""
        self._resumed: _Resumed | None = None

    def open_epoch(self) -> None:
        """Called when the caller's loop enters the current epoch, where it may draw random numbers before it reads."""
        resumed = self._resumed
        if resumed is not None and resumed.own is not None:
            is_inside = self.position.epoch_batch > 0
            at_start = resumed.own.get("loop_start") or resumed.own["epoch_start"]
            restore_random_state(dict(at_start if is_inside else resumed.own["random"]))
            resumed.is_opened = True
        self._loop_start = random_state()

    def training(self, loader: Loader) -> Iterator[Portion]:
        """The rest of the current epoch. The position counts a batch once it is yielded."""
        position = self.position
        weighted = self._on_device(self._weighted(loader), loader)
        if self.on_next is not None and loader.is_pure:
            weighted = read_ahead(weighted, self.on_next)
        for portion in self._wait.timed(weighted):
            position.take(records=portion.global_samples, group_total=portion.group_samples, ends_group=portion.is_last)
            self._own_records += portion.num_samples
            self._own_group_records = 0 if portion.is_last else self._own_group_records + portion.num_samples
            yield portion
        self._finish_resume()  # there may have been nothing left to read
        _check_not_empty(position)

    def training_shares(self, loaders: Mapping[int, Loader], workers: LogicalWorkers) -> Iterator[Portion]:
        """The rest of the current epoch in `exact` mode: several shares of each batch, each for a logical worker.

        Nothing but the position is resumed: what shares depend on is a function of the batch.
        """
        position, self._resumed = self.position, None
        self._loader = first = loaders[min(loaders)]
        sizes = first.records(position.epoch)
        assert sizes is not None, "checked when the loaders were made"
        if position.epoch_records:
            position.find_batch(sizes)
        taken = Taken(position.group_batches, position.group_records, position.group_total)
        batches = {
            number: portions(
                loader.batches(position.epoch, start=position.epoch_batch),
                strategy=self._strategy,
                accumulate=self._accumulate,
                records=sizes[position.epoch_batch :],
                taken=taken,
            )
            for number, loader in loaders.items()
        }
        for portion in self._wait.timed(shares(batches, workers, position.batches + 1)):
            portion.data = to_device(portion.data, self._device)
            if portion.begins_batch:
                ends = portion.ends_group
                position.take(records=portion.global_samples, group_total=portion.group_samples, ends_group=ends)
            yield portion
        _check_not_empty(position)

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

    def take_wait_s(self) -> float:
        """Seconds that training waited for data since the last call."""
        seconds = self._wait.seconds()
        taken_s, self._taken_wait_s = seconds - self._taken_wait_s, seconds
        return taken_s

    def rank_state(self) -> dict[str, Any]:
        """The states of the random generators now, and at the places where reading starts again after a resume."""
        if self._resumed is not None and self._resumed.own is not None:  # saved again before anything was read
            return dict(self._resumed.own)
        return {
            "random": self._states(),
            "loop_start": self._loop_start,
            "epoch_start": self._epoch_start,
            "group_start": self._group_start if self.position.group_batches else {},
            "own_records": self._own_records,
            "own_group_records": self._own_group_records,
        }

    def load(
        self, position: Mapping[str, int], own: Mapping[str, Any] | None, *, ranks: Sequence[Mapping[str, Any]]
    ) -> None:
        """Resume at `position` with the `own` state of this rank among the saved `ranks`.

        A rank that did not exist before (None) starts its generators from their seed.
        """
        self.position.load_state_dict(dict(position))
        self._resumed = _Resumed(own, ranks)
        self._own_records = own.get("own_records", 0) if own else 0
        self._own_group_records = own.get("own_group_records", 0) if own else 0

    def mark(self) -> Mark:
        """Where reading stands."""
        return Mark(replace(self.position), self._own_records, self._own_group_records)

    def rewind(self, mark: Mark) -> None:
        """Count as read what was read at `mark`; call `load` before anything else is read."""
        self.position.load_state_dict(mark.position.state_dict())
        self._own_records, self._own_group_records = mark.own_records, mark.own_group_records

    def _weighted(self, loader: Loader) -> Iterator[Portion]:
        position = self.position
        self._begin(loader)
        if self._resumed is not None and position.epoch_records:
            position.find_batch(loader.records(position.epoch))
        records = loader.records(position.epoch) if self._accumulate > 1 else None
        self._reads_groups = self._accumulate > 1 and records is None
        batches = self._unread(loader)
        if loader.num_batches is None and self._strategy.world.is_distributed:
            batches = with_global_sizes(batches, self._strategy, find_stand_in=lambda: loader.stand_in)
        return portions(
            batches,
            strategy=self._strategy,
            accumulate=self._accumulate,
            records=records[position.epoch_batch :] if records is not None else None,
            taken=Taken(position.group_batches, position.group_records, position.group_total),
            on_group=self._note_group_start,
            on_reread=self._finish_resume,
        )

    def _begin(self, loader: Loader) -> None:
        """Record the states at the start of reading; after a resume, restore those at the start of the resumed epoch.

        What depends on the generators is then read in the same order again up to the resumed position, where
        `_finish_resume` restores the states of that position.
        """
        is_new, self._loader = loader is not self._loader, loader
        if self.position.epoch_batch == 0:
            self._own_records = self._own_group_records = 0
        if self._resumed is not None:
            self._begin_resumed(self._resumed)
        elif is_new and self._strategy.world.is_distributed and (order := loader.order_state()):
            loader.load_state_dict(self._strategy.broadcast(order))
        self._epoch_start = self._states()

    def _begin_resumed(self, resumed: _Resumed) -> None:
        if self.position.epoch_batch > 0:
            self._restore("epoch_start")
            return
        self._restore("random", with_global=not resumed.is_opened)
        self._resumed = None

    def _unread(self, loader: Loader) -> Iterator[Batch]:
        """The batches that are not read yet; where sizes are known only by reading, those of the whole group again."""
        position, resumed = self.position, self._resumed
        start = position.epoch_batch - (position.group_batches if self._reads_groups else 0)
        if resumed is None or loader.records(position.epoch) is not None:
            return loader.batches(position.epoch, start=start, at_start=self._reach_start)
        place = Place(
            start,
            position.epoch_records - position.group_records,
            self._own_records - self._own_group_records if resumed.own else None,
            len(resumed.ranks),
        )
        return loader.batches_from(position.epoch, place, at_start=self._reach_start)

    def _reach_start(self) -> None:
        """Reading has reached the resumed position, or the start of its group."""
        if self._resumed is not None and self._reads_groups and self.position.group_batches:
            self._restore("group_start")
        else:
            self._finish_resume()
        self._note_group_start()

    def _note_group_start(self) -> None:
        if self._reads_groups:
            self._group_start = self._states()

    def _finish_resume(self) -> None:
        """Restore the random states of the resumed position, which reading has reached."""
        if self._resumed is not None:
            self._restore("random")
            self._resumed = None

    def _states(self) -> dict[str, Any]:
        reader = self._loader.state_dict() if self._loader is not None else {}
        return {**random_state(), "reader": reader}

    def _restore(self, name: str, *, with_global: bool = True) -> None:
        """Restore saved states; a rank that did not exist takes only what decides which rank gets which rows."""
        assert self._resumed is not None
        assert self._loader is not None
        own = self._resumed.own
        if own is not None and own.get(name):
            if with_global:
                restore_random_state(dict(own[name]))
            self._loader.load_state_dict(own[name].get("reader", {}))
        elif own is None:
            reader = self._resumed.ranks[0].get(name, {}).get("reader", {})
            self._loader.load_state_dict({part: reader[part] for part in reader if part != "reading"})

    def _on_device(self, weighted: Iterator[Portion], loader: Loader) -> Iterator[Portion]:
        if self._device.type == "cpu" or loader.is_on_device:
            return weighted
        return prefetched(weighted, self._device) if loader.is_pure else _copied_to_device(weighted, self._device)


@dataclass(frozen=True)
class Mark:
    """Where reading stood at some time."""

    position: Position
    own_records: int
    own_group_records: int


@dataclass
class _Resumed:
    """The saved states of a run that is resumed, until reading has reached its position."""

    own: Mapping[str, Any] | None
    ranks: Sequence[Mapping[str, Any]]
    is_opened: bool = False
    """Whether `open_epoch` has restored the global generators."""


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


def to_device(data: Any, device: torch.device | str) -> Any:
    """`data` with every tensor in it on `device`, which may be given by name."""
    if isinstance(device, str):
        device = choose_device(device, local_rank=0)
    if device.type == "cpu" and not torch.accelerator.is_available():  # there is no other place to come from
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
