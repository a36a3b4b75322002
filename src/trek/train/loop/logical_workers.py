"""LogicalWorkers: the shares of a batch that one process computes in `exact` mode, one after the other.

Everything that a share depends on belongs to its logical worker, or is the same for all: its rows, its random numbers
(a function of seed, batch and logical worker), its gradients, and buffers as they were before the batch. After the
step, buffers are those of logical worker 0. So nothing is lost with a process, and another one computes the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from trek.data.loaders import Loader, as_loader
from trek.errors import ConfigError, InputError
from trek.strategies.regrouping import Regrouping
from trek.train.loop.portions import Portion
from trek.world.seeds import seed_everything

Buffers = dict[str, torch.Tensor]
_SHARES = 1 << 16
"""More than there are logical workers."""


class LogicalWorkers:
    """Those of this process."""

    def __init__(self, strategy: Regrouping, *, models: Sequence[nn.Module], seed: int) -> None:
        assert strategy.exact is not None
        self._strategy = strategy
        self._exact = strategy.exact
        self._models = models
        self._seed = seed
        self._at_step: Buffers = {}
        """Buffers after the last complete step, once a batch has begun after it."""
        self._before: Buffers = {}
        """Buffers before the batch."""
        self._after: Buffers = {}
        """Buffers of logical worker 0 after it."""

    @property
    def numbers(self) -> list[int]:
        """The logical workers of this process in the present group."""
        return self._exact.ranks_of(self._strategy.world)

    def loaders(self, source: Any) -> dict[int, Loader]:
        """The data of each."""
        world = self._strategy.world
        size = self._exact.num_logical
        made = {
            number: as_loader(source, world=replace(world, rank=number, size=size), seed=self._seed)
            for number in self.numbers
        }
        for loader in made.values():
            if loader.num_batches is None or loader.records(0) is None or loader.order_state():
                raise ConfigError(
                    "elastic='exact' needs data whose batches depend on the epoch alone: a dataset with a length, "
                    "without a sampler of its own. Use elastic='fast', or such a dataset."
                )
        return made

    def begin_share(self, number: int, batches: int) -> None:
        """What is drawn from now on, by reading too, belongs to this share of this batch."""
        seed_everything(self._seed, rank=1 + batches * _SHARES + number)

    @contextmanager
    def acting(self, portion: Portion) -> Iterator[None]:
        """Around the caller's work on a share."""
        parameters = [p for model in self._models for p in model.parameters()]
        if portion.begins_batch:
            self._before, self._after = self._copied(), {}
            self._at_step = self._at_step or self._before
        else:
            self._set_buffers(self._before)
        self._exact.begin(portion.logical, parameters)
        if portion.ends_batch:
            self._strategy.before_sum = self._exchange_buffers
        yield
        if portion.logical == 0 and not self._after:
            self._after = self._copied()
        self._exact.end(parameters)
        if portion.ends_batch:
            if not portion.is_last:  # else with the step
                self._exchange_buffers()
            self._set_buffers(self._after or self._before)

    def complete(self) -> None:
        """What was computed is in the state, and is not computed again."""
        self._at_step = {}

    def rewind(self) -> None:
        """Everything since the last complete step is computed again."""
        self._exact.clear()
        if self._at_step:
            self._set_buffers(self._at_step)
        self.complete()

    def _exchange_buffers(self) -> None:
        """Before the step, so that nobody has applied it without knowing the buffers that go with it."""
        if not self._before:
            return
        is_leader = self._strategy.world.is_leader
        if is_leader and not self._after:  # the last share is that of logical worker 0
            self._after = self._copied()
        after = self._after if is_leader else self._before
        self._after = {name: buffer.clone() for name, buffer in after.items()}
        self._strategy.copy_leaders([*self._after.values()])

    def _buffers(self) -> Buffers:
        """By name; sparse ones are constants of the model."""
        return {
            f"{index}/{name}": buffer
            for index, model in enumerate(self._models)
            for name, buffer in model.named_buffers()
            if buffer.layout is torch.strided
        }

    def _copied(self) -> Buffers:
        return {name: buffer.clone() for name, buffer in self._buffers().items()}

    @torch.no_grad()
    def _set_buffers(self, values: Buffers) -> None:
        present = self._buffers()
        for name in [*values, *present]:
            if name not in values or name not in present or values[name].shape != present[name].shape:
                raise InputError(
                    f"elastic='exact' needs buffers that keep their shape, and training changed that of "
                    f"{name.partition('/')[2]!r}. Make it with its final shape, or use elastic='fast'."
                )
            present[name].copy_(values[name])


def shares(batches: Mapping[int, Iterator[Portion]], workers: LogicalWorkers, batch: int) -> Iterator[Portion]:
    """The portions of the logical workers of this process in turn, batch by batch, the next one being `batch`."""
    numbers = sorted(batches)
    while True:
        for number in numbers:
            workers.begin_share(number, batch)
            portion = next(batches[number], None)
            if portion is None:
                return
            portion.logical, portion.ends_group = number, portion.is_last
            portion.begins_batch = number == numbers[0]
            portion.ends_batch = number == numbers[-1]
            portion.is_last = portion.is_last and portion.ends_batch
            yield portion
        batch += 1
