"""Data parallel replicas whose World changes while they train: each generation of workers has a group of its own.

All parts of a run hold this one strategy. Inside is `ddp` for the present generation, or `solo` for a generation of one
worker, and before the first. A collective that fails because a peer is gone raises `GroupBroken`; the group stays
broken until `enter` is called with the World of the next generation.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from trek.errors import OutsideError
from trek.phases import reached
from trek.strategies.base import GroupBroken, ReduceOp, Strategy
from trek.strategies.ddp import DDP
from trek.strategies.exact_sum import ExactSum, sum_messages
from trek.strategies.solo import Solo
from trek.world import World

_LOST = (ConnectionError, TimeoutError, EOFError, dist.DistBackendError, dist.DistNetworkError, dist.DistStoreError)


class Regrouping(Strategy):
    """`ddp` among whoever belongs to the present generation."""

    name = "ddp"
    leases_work = False
    """Whether workers lease what they train on, and do not step together."""

    def __init__(self, world: World, *, is_exact: bool = False, **options: Any) -> None:
        super().__init__(world)
        self._options = options
        self.exact = ExactSum(world.max_size) if is_exact else None
        """In `exact` mode, the logical workers of this process."""
        self.before_sum: Callable[[], None] = lambda: None
        """In `exact` mode, what is exchanged before the gradients of a step."""
        self._models: list[nn.Module] = []
        self._inner: Strategy = Solo(world)
        self._buffer_syncs: dict[int, Callable[[], None] | None] = {}
        self.is_broken = False
        self.failure: BaseException | None = None
        """What the last collective of a broken group raised."""
        self.is_abandoned: Callable[[], bool] = lambda: False
        """Whether somebody of the World that is entered is known to be lost already."""
        self._waiting_since_s: float | None = None

    # -- generations

    def enter(self, world: World) -> None:
        """Form the group of `world`, whose ranks all call this; GroupBroken if one of them does not come."""
        reached("entering")
        self.leave()
        self.world, self.is_broken, self.failure = world, False, None
        num_messages = self.exact.num_logical if self.exact is not None else 0
        is_alone = not world.is_distributed
        self._inner = Solo(world) if is_alone else DDP(world, num_messages=num_messages, **self._options)
        if self.is_abandoned():  # told before there was anything to abandon
            self.abandon()
        with self._guarded():
            self._inner.setup()
        for model in self._models:
            self._keep(model)

    def leave(self) -> None:
        """Leave the present group, broken or not."""
        inner, self._inner = self._inner, Solo(self.world)
        with self._waiting(), suppress(RuntimeError, OSError):  # of a broken group
            inner.teardown()

    def abandon(self) -> None:
        """From any thread: a peer is lost, so nothing of this group can complete. The peers that wait here notice."""
        self.is_broken = True
        if isinstance(self._inner, DDP):
            self._inner.connections.abandon()

    def waiting_s(self) -> float:
        """How long this process has been in the present collective, from any thread; 0 outside of collectives."""
        since_s = self._waiting_since_s
        return 0.0 if since_s is None else time.monotonic() - since_s

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        self._waiting_since_s = time.monotonic()
        try:
            yield
        finally:
            self._waiting_since_s = None

    def teardown(self) -> None:
        """Leave for good."""
        self.leave()

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Around a collective."""
        if self.is_broken:
            raise GroupBroken(str(self.failure or "a worker was lost"))
        try:
            with self._waiting():
                yield
        except (*_LOST, RuntimeError, OutsideError) as error:
            self._note_failure(error)
            raise GroupBroken(str(error)) from error

    def _note_failure(self, error: BaseException) -> None:
        """What broke for one rank is over for all. The error keeps the group's sockets open, since torch's frames in
        its traceback hold the group: so they are shut here, and no peer waits for this rank any more."""
        self.failure = error
        self.abandon()

    def has_lost_peer(self, error: BaseException) -> bool:
        """A backward pass sends gradients, and runs the user's code: only what is certainly of the group counts."""
        is_lost = isinstance(error, _LOST) or (isinstance(error, RuntimeError) and "gloo" in str(error))
        if is_lost:
            self._note_failure(error)
        return is_lost

    # -- models

    def wrap_model(self, model: nn.Module) -> nn.Module:
        """Place the model; it gets the weights of the others when the first group is formed."""
        placed = super().wrap_model(model)
        self._models.append(placed)
        self._keep(placed)
        return placed

    def buffer_sync(self, model: nn.Module) -> Callable[[], None] | None:
        """What the present group does after every batch; in `exact` mode buffers are kept with the logical workers."""
        if self.exact is not None or not list(model.buffers()):
            return None
        return lambda: self._sync_moving(model)

    def _keep(self, model: nn.Module) -> None:
        if isinstance(self._inner, DDP):
            self._inner.keep(model)
        self._buffer_syncs[id(model)] = self._inner.buffer_sync(model)

    def _sync_moving(self, model: nn.Module) -> None:
        sync = self._buffer_syncs.get(id(model))
        if sync is not None:
            with self._guarded():
                sync()

    def load_model_state(self, model: nn.Module, state: dict[str, torch.Tensor]) -> None:
        """On this rank."""
        self._inner.load_model_state(model, state)

    # -- gradients

    def loss_weight(self, num_samples: int, global_samples: int) -> float:
        """That of the present group; in `exact` mode, that of a group of all logical workers."""
        if self.exact is not None:
            return num_samples * self.exact.num_logical / global_samples
        return self._inner.loss_weight(num_samples, global_samples)

    def hold_gradients(self, model: nn.Module, *, held: bool) -> None:
        """Whether to defer syncing."""
        self._inner.hold_gradients(model, held=held)

    def sync_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Average over the present group; after GroupBroken, the gradients are invalid."""
        with self._guarded():
            if self.exact is not None:
                self.before_sum()
                self.exact.average([p for p in parameters if p.requires_grad], sum_in_order=self._sum_in_order)
            else:
                self._inner.sync_gradients(parameters)

    def copy_leaders(self, tensors: list[torch.Tensor]) -> None:
        """Replace the content of tensors by the leader's."""
        if isinstance(self._inner, DDP):
            with self._guarded():
                self._inner.copy_leaders(tensors)

    def _sum_in_order(self, messages: Mapping[int, torch.Tensor]) -> torch.Tensor:
        if isinstance(self._inner, DDP):
            return self._inner.sum_in_order(messages)
        return sum_messages([messages[number] for number in sorted(messages)])

    def sync_buffers(self, model: nn.Module) -> None:
        """Copy the leader's buffers."""
        with self._guarded():
            self._inner.sync_buffers(model)

    def load_gradients(
        self,
        parameters: Sequence[nn.Parameter],
        *,
        held: Sequence[Mapping[int, torch.Tensor]],
        averaged: Mapping[int, torch.Tensor],
    ) -> None:
        """Those of a checkpoint."""
        self._inner.load_gradients(parameters, held=held, averaged=averaged)

    # -- collectives

    def reduce(self, tensor: torch.Tensor, op: ReduceOp = "sum") -> torch.Tensor:
        """Over the present group."""
        with self._guarded():
            return self._inner.reduce(tensor, op)

    def gather(self, value: Any) -> list[Any]:
        """Of the present group."""
        with self._guarded():
            return self._inner.gather(value)

    def broadcast(self, value: Any) -> Any:
        """The present leader's."""
        with self._guarded():
            return self._inner.broadcast(value)

    def any(self, flag: bool) -> bool:
        """Over the present group."""
        with self._guarded():
            return self._inner.any(flag)

    def barrier(self) -> None:
        """Wait for every rank of the present group."""
        with self._guarded():
            self._inner.barrier()
