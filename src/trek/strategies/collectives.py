"""A Strategy that uses a torch process group: joining, leaving, and the collectives.

Knows nothing about models; `ddp` and `fsdp` add how gradients are synced.
"""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from trek.errors import ConfigError
from trek.strategies.base import ReduceOp, Strategy
from trek.world import World

# gloo's threads release a tensor to Python shortly after its collective has returned. A program that exits in between
# aborts, because a thread must not enter an interpreter that is shutting down; gloo does not signal when they are done.
_RELEASE_S = 0.05
_OPS = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}


class CollectiveStrategy(Strategy):
    """Joins the process group of its World; destroys the group only if it created it."""

    def __init__(self, world: World, *, backend: str | None = None, timeout_s: float = 1800.0) -> None:
        super().__init__(world)
        self.backend = backend or ("nccl" if world.device.type == "cuda" else "gloo")
        if not dist.is_backend_available(self.backend):
            raise ConfigError(
                f"torch was built without the communication backend {self.backend!r}. "
                f"Use {'nccl' if world.device.type == 'cuda' else 'gloo'}, or install a torch build that includes it."
            )
        if timeout_s <= 0:
            raise ConfigError(f"timeout_s must be greater than 0, got {timeout_s}.")
        self.timeout_s = timeout_s
        self._owns_group = False

    def setup(self) -> None:
        """Join the group, and check that it has the size of the World."""
        if not dist.is_initialized():
            if self.world.device.type == "cuda":
                torch.cuda.set_device(self.world.device)
            dist.init_process_group(
                self.backend,
                init_method=f"tcp://{self.world.master_addr}:{self.world.master_port}",
                rank=self.world.rank,
                world_size=self.world.size,
                timeout=timedelta(seconds=self.timeout_s),
            )
            self._owns_group = True
        if dist.get_world_size() != self.world.size:
            raise ConfigError(
                f"expected a process group of {self.world.size} processes, got one of {dist.get_world_size()}. "
                "Let Trek create the group, or create it with this size."
            )

    def teardown(self) -> None:
        """Leave the group."""
        if self._owns_group and dist.is_initialized():
            dist.destroy_process_group()
            time.sleep(_RELEASE_S)
        self._owns_group = False

    def reduce(self, tensor: torch.Tensor, op: ReduceOp = "sum") -> torch.Tensor:
        """All-reduce of a copy."""
        result = tensor.detach().to(self.world.device, copy=True)
        dist.all_reduce(result, op=_OPS[op])
        return result.to(tensor.device)

    def gather(self, value: Any) -> list[Any]:
        """All-gather of a picklable value."""
        values: list[Any] = [None] * self.world.size
        dist.all_gather_object(values, value)
        return values

    def broadcast(self, value: Any) -> Any:
        """The leader's value."""
        values = [value]
        dist.broadcast_object_list(values, src=0)
        return values[0]

    def any(self, flag: bool) -> bool:
        """One small all-reduce."""
        count = torch.tensor([float(flag)], device=self.world.device)
        dist.all_reduce(count)
        return bool(count.item())

    def barrier(self) -> None:
        """Wait for every rank."""
        dist.barrier()
