"""Every rank holds the whole model; gradients are summed over ranks.

Three ways. On the cores of one machine gradients are summed in memory that all ranks share. Elsewhere a small model
sends all its gradients in one flat all-reduce after backward: fewer messages beat overlap. A larger one is wrapped in
torch's DistributedDataParallel, which overlaps communication with backward.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from trek.strategies.collectives import CollectiveStrategy
from trek.strategies.host_sum import HostSum, open_host_sum
from trek.world import World

_FLAT_BYTES = 4 << 20
# Gradients travel in messages of about this size, so that there is no second copy of all of them.
_MESSAGE_BYTES = 32 << 20


class DDP(CollectiveStrategy):
    """Data parallel replicas."""

    name = "ddp"

    def __init__(
        self,
        world: World,
        *,
        backend: str | None = None,
        timeout_s: float = 1800.0,
        find_unused_parameters: bool = False,
        flat_bytes: int = _FLAT_BYTES,
        shared_memory: bool = True,
    ) -> None:
        super().__init__(world, backend=backend, timeout_s=timeout_s)
        self._find_unused = find_unused_parameters
        self._flat_bytes = flat_bytes
        self._shares_memory = shared_memory and world.device.type == "cpu" and self.backend == "gloo"
        self._host: HostSum | None = None
        self._wrapped: set[nn.Parameter] = set()
        self._known_flags: dict[Any, torch.Tensor] = {}

    def setup(self) -> None:
        """Join the group, and share memory with it where that is possible."""
        super().setup()
        if self._shares_memory and self.world.is_distributed:
            self._host = open_host_sum(
                self.world, broadcast=self.broadcast, gather=self.gather, timeout_s=self.timeout_s
            )

    def teardown(self) -> None:
        """Leave both."""
        if self._host is not None:
            self._host.close()
        super().teardown()

    def wrap_model(self, model: nn.Module) -> nn.Module:
        """Start every replica from the leader's weights; wrap it where overlap pays."""
        model = super().wrap_model(model)
        trained = [p for p in model.parameters() if p.requires_grad]
        if self._host or not trained or sum(p.nbytes for p in trained) <= self._flat_bytes:
            for tensor in [*model.parameters(), *model.buffers()]:
                dist.broadcast(tensor.detach(), src=0)
            return model
        self._wrapped.update(trained)
        devices = [self.world.device] if self.world.device.type == "cuda" else None
        return DistributedDataParallel(model, device_ids=devices, find_unused_parameters=self._find_unused)

    def unwrap_model(self, model: nn.Module) -> nn.Module:
        """The module inside the wrapper."""
        inner: nn.Module = model.module if isinstance(model, DistributedDataParallel) else model
        return inner

    def loss_weight(self, num_samples: int, global_samples: int) -> float:
        """This rank's share of the samples, times the size, since gradients are averaged over ranks."""
        return num_samples * self.world.size / global_samples

    def hold_gradients(self, model: nn.Module, *, held: bool) -> None:
        """What the wrapper's own `no_sync` sets, without a block to keep open between two batches."""
        if isinstance(model, DistributedDataParallel):
            model.require_backward_grad_sync = not held

    def sync_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Average every gradient that no wrapper has sent already."""
        for group in _messages([p for p in parameters if p.requires_grad and p not in self._wrapped]):
            self._average(group)

    def sync_buffers(self, model: nn.Module) -> None:
        """Broadcast the leader's."""
        for buffer in self.unwrap_model(model).buffers():
            dist.broadcast(buffer.detach(), src=0)

    @torch.no_grad()
    def _average(self, parameters: list[nn.Parameter]) -> None:
        """Average gradients over ranks in one message.

        A flag per parameter travels along: a parameter that got a gradient on any rank has one on all of them
        afterwards, and one that got none anywhere keeps none, so that the optimizer leaves it alone.
        """
        has_grad = [p.grad is not None for p in parameters]
        grads = [p.grad if p.grad is not None else torch.zeros_like(p) for p in parameters]
        flags = self._flags(has_grad, grads[0])
        message = torch.cat([*(g.reshape(-1) for g in grads), flags])
        if self._host is not None:
            self._host.all_reduce(message)
        else:
            dist.all_reduce(message)
        message.div_(self.world.size)
        *parts, flags = torch.split(message, [*(p.numel() for p in parameters), len(parameters)])
        used = has_grad if all(has_grad) else [bool(flag) for flag in flags.tolist()]
        for parameter, part, is_used in zip(parameters, parts, used, strict=True):
            parameter.grad = part.view_as(parameter) if is_used else None

    def _flags(self, has_grad: list[bool], like: torch.Tensor) -> torch.Tensor:
        """They seldom change, and sending them to a GPU would make it wait in every step."""
        key = (tuple(has_grad), like.dtype, like.device)
        if key not in self._known_flags:
            self._known_flags[key] = like.new_tensor(has_grad)
        return self._known_flags[key]


def _messages(parameters: list[nn.Parameter]) -> Iterator[list[nn.Parameter]]:
    """Parameters that travel together: one after the other, of one type, up to a size."""
    group: list[nn.Parameter] = []
    taken = 0
    for parameter in parameters:
        if group and (parameter.dtype != group[0].dtype or taken + parameter.nbytes > _MESSAGE_BYTES):
            yield group
            group, taken = [], 0
        group.append(parameter)
        taken += parameter.nbytes
    if group:
        yield group
