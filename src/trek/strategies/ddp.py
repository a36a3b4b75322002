"""Every rank holds the whole model; gradients are summed over ranks.

There are three ways. On the CPU of one machine, gradients are summed in memory that all ranks share. Otherwise, a small
model sends all its gradients in one flat all-reduce after the backward pass, because fewer messages are faster than
overlap. A larger one sends them in buckets while the backward pass goes on. Training is the same either way: the model
is never wrapped, and parameters may stay without a gradient on some ranks or on all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from trek.errors import ConfigError
from trek.strategies.buckets import Bucket, OverlappedBuckets, split_by_bytes
from trek.strategies.collectives import CollectiveStrategy, copy_bytes, flat_bytes
from trek.strategies.exact_sum import sum_messages
from trek.strategies.host_sum import HostSum, open_host_sum
from trek.strategies.sparse import average_sparse, gather_rows, sparse_parameters
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
        num_messages: int = 0,
    ) -> None:
        super().__init__(world, backend=backend, timeout_s=timeout_s)
        if not isinstance(shared_memory, bool):
            raise ConfigError(f"shared_memory must be True or False, got {shared_memory!r}.")
        del find_unused_parameters  # they are always allowed
        self._num_messages = num_messages
        """How many messages `sum_in_order` adds up; see there."""
        self._flat_bytes = flat_bytes
        self._shares_memory = shared_memory and world.device.type == "cpu" and self.backend == "gloo"
        self._host: HostSum | None = None
        self._is_held = False
        self._sparse: set[nn.Parameter] = set()
        self._buckets: dict[tuple[int, ...], list[Bucket] | OverlappedBuckets] = {}

    def setup(self) -> None:
        """Join the group, and share memory with its ranks if possible."""
        super().setup()
        if self._shares_memory and self.world.is_distributed:
            self._host = open_host_sum(
                self.world,
                num_slots=max(self.world.size, self._num_messages),
                broadcast=self.broadcast,
                gather=self.gather,
                timeout_s=self.timeout_s,
                connections=self.connections,
            )

    def teardown(self) -> None:
        """Close the shared memory, leave the model as it was, and leave the group."""
        for buckets in self._buckets.values():
            if isinstance(buckets, OverlappedBuckets):
                buckets.close()
        if self._host is not None:
            self._host.close()
        super().teardown()

    def wrap_model(self, model: nn.Module) -> nn.Module:
        """Start every replica from the leader's weights. The model is not wrapped, whichever way gradients travel."""
        model = super().wrap_model(model)
        self.keep(model)
        self.start_equal(model)
        return model

    def keep(self, model: nn.Module) -> None:
        """Average the gradients of `model`, a replica already."""
        self._sparse.update(sparse_parameters(model).values())

    def loss_weight(self, num_samples: int, global_samples: int) -> float:
        """This rank's share of the samples times the number of ranks, because gradients are averaged over ranks."""
        return num_samples * self.world.size / global_samples

    def hold_gradients(self, model: nn.Module, *, held: bool) -> None:
        """Send no gradient while it accumulates."""
        self._is_held = held

    def sync_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Average every gradient."""
        trained = [p for p in parameters if p.requires_grad]
        if self.tables is not None:
            self._share_rows(trained)
            trained = [p for p in trained if p.numel()]
        dense = [p for p in trained if p not in self._sparse]
        if len(dense) < len(trained):
            for parameter in trained:
                if parameter in self._sparse:
                    average_sparse(parameter, num_ranks=self.world.size)
        if self._host is not None and (large := [p for p in dense if p.nbytes >= _LARGE_BYTES]):
            self._average_in_place(large)
            dense = [p for p in dense if p.nbytes < _LARGE_BYTES]
        if dense:
            self._average_in_buckets(dense)

    def _share_rows(self, parameters: list[nn.Parameter]) -> None:
        """Give every rank the row gradients of all: each holds whole tables, and updates them alike."""
        assert self.tables is not None
        for module in self.tables.modules_of(parameters):
            own = module.gradients()
            empty = torch.empty(0, dtype=torch.int64), torch.empty(0, module.spec.dim)
            ids, values = gather_rows(*(own or empty), num_ranks=self.world.size, device=self.world.device)
            module.replace_gradients(ids.cpu(), values / self.world.size)

    def _average_in_buckets(self, parameters: list[nn.Parameter]) -> None:
        key = tuple(map(id, parameters))
        if key not in self._buckets:
            self._buckets[key] = self._make_buckets(parameters)
        buckets = self._buckets[key]
        if isinstance(buckets, OverlappedBuckets):
            buckets.average()
            return
        for bucket in buckets:
            bucket.send()
            bucket.receive()

    def _make_buckets(self, parameters: list[nn.Parameter]) -> list[Bucket] | OverlappedBuckets:
        num_bytes = sum(p.nbytes for p in parameters)
        if self._host is not None or num_bytes <= self._flat_bytes:
            groups = split_by_bytes(parameters, bucket_bytes=num_bytes + 1)
            return [Bucket(group, average=self._average) for group in groups]
        return OverlappedBuckets(parameters, average=self._average, any_rank=self.any, is_held=lambda: self._is_held)

    @torch.no_grad()
    def _average_in_place(self, parameters: list[nn.Parameter]) -> None:
        """Average large gradients over ranks in place, after exchanging which parameters have one."""
        has_grad = torch.tensor([float(p.grad is not None) for p in parameters])
        self._average(has_grad)()
        for parameter, is_used in zip(parameters, has_grad.tolist(), strict=True):
            if is_used:
                grad = parameter.grad if parameter.grad is not None else torch.zeros_like(parameter)
                parameter.grad = (grad.to_dense() if grad.is_sparse else grad).contiguous()
                self._average(parameter.grad.view(-1))()

    def _average(self, message: torch.Tensor) -> Callable[[], None]:
        """Start to replace a flat tensor by its mean over ranks."""
        if self._host is not None:
            self._host.all_reduce(message, divisor=self.world.size)
            return lambda: None
        work: Any = dist.all_reduce(message, async_op=True)

        def wait() -> None:
            work.wait()
            message.div_(self.world.size)

        return wait

    def sum_in_order(self, messages: Mapping[int, torch.Tensor]) -> torch.Tensor:
        """The sum of messages, of which every rank has some, in the order of their numbers: every bit is defined."""
        if self._host is not None:
            return self._host.sum_in_order(messages, num_messages=self._num_messages)
        most = -(-self._num_messages // self.world.size)
        own = torch.stack([*messages.values()])
        padded = nn.functional.pad(own, (0, 0, 0, most - len(own)))
        received = [torch.empty_like(padded) for _ in range(self.world.size)]
        dist.all_gather(received, padded)
        size = self.world.size
        return sum_messages([received[number % size][number // size] for number in range(self._num_messages)])

    def copy_leaders(self, tensors: list[torch.Tensor]) -> None:
        """Through shared memory where there is some: the sum with zeros, byte by byte."""
        if self._host is None:
            super().copy_leaders(tensors)
            return
        message = flat_bytes(tensors)
        if not self.world.is_leader:
            message.zero_()
        self._host.all_reduce(message)
        copy_bytes(message, tensors)
