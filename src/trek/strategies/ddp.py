"""Every rank holds the whole model; gradients are summed over ranks.

There are three ways. On the CPU of one machine, gradients are summed in memory that all ranks share. Otherwise, a small
model sends all its gradients in one flat all-reduce after the backward pass, because fewer messages are faster than
overlap. A larger model is wrapped in torch's DistributedDataParallel, which overlaps communication with backward.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from trek.errors import ConfigError
from trek.strategies.collectives import CollectiveStrategy
from trek.strategies.host_sum import HostSum, open_host_sum
from trek.world import World

_FLAT_BYTES = 4 << 20
# In shared memory, a gradient of this size is summed separately: joining it with others would cost a copy.
_LARGE_BYTES = 1 << 20


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
        if not isinstance(shared_memory, bool):
            raise ConfigError(f"shared_memory must be True or False, got {shared_memory!r}.")
        self._find_unused = find_unused_parameters
        self._flat_bytes = flat_bytes
        self._shares_memory = shared_memory and world.device.type == "cpu" and self.backend == "gloo"
        self._host: HostSum | None = None
        self._wrapped: set[nn.Parameter] = set()
        self._known_flags: dict[Any, torch.Tensor] = {}

    def setup(self) -> None:
        """Join the group, and share memory with its ranks if possible."""
        super().setup()
        if self._shares_memory and self.world.is_distributed:
            self._host = open_host_sum(
                self.world, broadcast=self.broadcast, gather=self.gather, timeout_s=self.timeout_s
            )

    def teardown(self) -> None:
        """Close the shared memory and leave the group."""
        if self._host is not None:
            self._host.close()
        super().teardown()

    def wrap_model(self, model: nn.Module) -> nn.Module:
        """Start every replica from the leader's weights; wrap it if overlap is faster."""
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
        """This rank's share of the samples times the number of ranks, because gradients are averaged over ranks."""
        return num_samples * self.world.size / global_samples

    def hold_gradients(self, model: nn.Module, *, held: bool) -> None:
        """Set what the wrapper's `no_sync` sets, which would need a block that stays open between batches."""
        if isinstance(model, DistributedDataParallel):
            model.require_backward_grad_sync = not held

    def sync_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Average every gradient that no wrapper has averaged already."""
        flat = [p for p in parameters if p.requires_grad and p not in self._wrapped]
        if self._host is not None and (large := [p for p in flat if p.nbytes >= _LARGE_BYTES]):
            self._average_in_place(large)
            flat = [p for p in flat if p.nbytes < _LARGE_BYTES]
        for dtype in dict.fromkeys(p.dtype for p in flat):
            self._average([p for p in flat if p.dtype == dtype])

    def sync_buffers(self, model: nn.Module) -> None:
        """Broadcast the leader's buffers."""
        for buffer in self.unwrap_model(model).buffers():
            dist.broadcast(buffer.detach(), src=0)

    @torch.no_grad()
    def _average(self, parameters: list[nn.Parameter]) -> None:
        """Average gradients over ranks in one message.

        The message includes a flag per parameter: a parameter with a gradient on any rank has one on all ranks
        afterwards, and one without any gradient keeps none, so that the optimizer skips it.
        """
        has_grad = [p.grad is not None for p in parameters]
        grads = [p.grad if p.grad is not None else torch.zeros_like(p) for p in parameters]
        flags = self._flags(has_grad, grads[0])
        message = torch.cat([*(g.reshape(-1) for g in grads), flags])
        self._mean(message)
        *parts, flags = torch.split(message, [*(p.numel() for p in parameters), len(parameters)])
        used = has_grad if all(has_grad) else [bool(flag) for flag in flags.tolist()]
        for parameter, part, is_used in zip(parameters, parts, used, strict=True):
            parameter.grad = part.view_as(parameter) if is_used else None

    @torch.no_grad()
    def _average_in_place(self, parameters: list[nn.Parameter]) -> None:
        """Average gradients over ranks in place, after exchanging which parameters have one."""
        flags = self._flags([p.grad is not None for p in parameters], parameters[0]).clone()
        self._mean(flags)
        for parameter, is_used in zip(parameters, flags.tolist(), strict=True):
            if is_used:
                grad = parameter.grad if parameter.grad is not None else torch.zeros_like(parameter)
                parameter.grad = grad.contiguous()
                self._mean(parameter.grad.view(-1))

    def _mean(self, message: torch.Tensor) -> None:
        if self._host is not None:
            self._host.all_reduce(message, divisor=self.world.size)
        else:
            dist.all_reduce(message)
            message.div_(self.world.size)

    def _flags(self, has_grad: list[bool], like: torch.Tensor) -> torch.Tensor:
        """`has_grad` as a tensor; cached, because it seldom changes and a copy to a GPU would sync in every step."""
        key = (tuple(has_grad), like.dtype, like.device)
        if key not in self._known_flags:
            self._known_flags[key] = like.new_tensor(has_grad)
        return self._known_flags[key]
