"""A Strategy that uses a torch process group: joining, leaving, and the collectives.

Values travel as plain data (`plain_data`), never as pickles. How ranks find each other, and how they keep others out,
is in `meeting`. Knows nothing about models; `ddp` and `fsdp` add how gradients are synced.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import torch
import torch.distributed as dist

from trek.errors import ConfigError
from trek.strategies.base import ReduceOp, Strategy
from trek.strategies.meeting import joined_group
from trek.strategies.plain_data import from_bytes, to_bytes
from trek.world import World

_OPS = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}


class CollectiveStrategy(Strategy):
    """Joins the process group of its World; leaves it to others if it exists already."""

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
        self._group = ExitStack()

    def setup(self) -> None:
        """Join the group, and check that it has the size of the World."""
        if not dist.is_initialized():
            if self.world.device.type == "cuda":
                torch.cuda.set_device(self.world.device)
            self._group.enter_context(joined_group(self.world, backend=self.backend, timeout_s=self.timeout_s))
        if dist.get_world_size() != self.world.size:
            raise ConfigError(
                f"expected a process group of {self.world.size} processes, got one of {dist.get_world_size()}. "
                "Let Trek create the group, or create it with this size."
            )

    def teardown(self) -> None:
        """Leave the group, if it was created here."""
        self._group.close()

    def reduce(self, tensor: torch.Tensor, op: ReduceOp = "sum") -> torch.Tensor:
        """All-reduce of a copy."""
        result = tensor.detach().to(self.world.device, copy=True)
        dist.all_reduce(result, op=_OPS[op])
        return result.to(tensor.device)

    def gather(self, value: Any) -> list[Any]:
        """All-gather of a plain value: see `plain_data`."""
        own = self._message(value)
        lengths = [torch.zeros(1, dtype=torch.int64, device=self.world.device) for _ in range(self.world.size)]
        dist.all_gather(lengths, torch.tensor([own.numel()], device=self.world.device))
        counts = [int(length.item()) for length in lengths]
        padded = torch.nn.functional.pad(own, (0, max(counts) - own.numel()))
        messages = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(messages, padded)
        return [_value(message[:count]) for message, count in zip(messages, counts, strict=True)]

    def broadcast(self, value: Any) -> Any:
        """The leader's plain value: see `plain_data`."""
        own = self._message(value) if self.world.is_leader else None
        length = torch.tensor([own.numel() if own is not None else 0], device=self.world.device)
        dist.broadcast(length, src=0)
        count = int(length.item())
        message = own if own is not None else torch.empty(count, dtype=torch.uint8, device=self.world.device)
        dist.broadcast(message, src=0)
        return _value(message)

    def _message(self, value: Any) -> torch.Tensor:
        return torch.frombuffer(bytearray(to_bytes(value)), dtype=torch.uint8).to(self.world.device)

    def any(self, flag: bool) -> bool:
        """One small all-reduce."""
        count = torch.tensor([float(flag)], device=self.world.device)
        dist.all_reduce(count)
        return bool(count.item())

    def barrier(self) -> None:
        """Wait for every rank."""
        dist.barrier()


def _value(message: torch.Tensor) -> Any:
    return from_bytes(message.cpu().numpy().tobytes())
