"""A Strategy that uses a torch process group: joining, leaving, and the collectives.

Also the buffers of models, which every rank must read alike. Values travel as plain data (`trek.wire.values`), never as
pickles. How ranks find each other, and how they keep others out, is in `meeting`. Knows nothing about gradients; `ddp`
and `fsdp` add how they are synced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parameter import is_lazy

from trek.errors import ConfigError, InputError
from trek.strategies.base import ReduceOp, Strategy
from trek.strategies.connections import Connections
from trek.strategies.meeting import joined_group
from trek.strategies.moving_buffers import MovingBuffers
from trek.wire.values import Message, from_bytes, to_bytes
from trek.world import World

_PIECE_BYTES = 4 << 20
"""A value that is broadcast needs so much memory beside its own, on each rank."""
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
        self.connections = Connections()
        """Those of the group; shutting them ends whatever waits for a peer."""
        self._moving: list[tuple[nn.Module, MovingBuffers]] = []
        self._asked: tuple[torch.cuda.Event, torch.Tensor] | None = None

    def setup(self) -> None:
        """Join the group, and check that it has the size of the World."""
        if not dist.is_initialized():
            if self.world.device.type == "cuda":
                torch.cuda.set_device(self.world.device)
            self._group.enter_context(
                joined_group(self.world, backend=self.backend, timeout_s=self.timeout_s, connections=self.connections)
            )
        if dist.get_world_size() != self.world.size:
            raise ConfigError(
                f"expected a process group of {self.world.size} processes, got one of {dist.get_world_size()}. "
                "Let Trek create the group, or create it with this size."
            )

    def teardown(self) -> None:
        """Leave the group, if it was created here."""
        super().teardown()
        self._group.close()

    def reduce(self, tensor: torch.Tensor, op: ReduceOp = "sum") -> torch.Tensor:
        """All-reduce of a copy."""
        result = tensor.detach().to(self.world.device, copy=True)
        dist.all_reduce(result, op=_OPS[op])
        return result.to(tensor.device)

    def gather(self, value: Any) -> list[Any]:
        """All-gather of a plain value: see `trek.wire.values`."""
        own = torch.frombuffer(bytearray(to_bytes(value)), dtype=torch.uint8).to(self.world.device)
        lengths = [torch.zeros(1, dtype=torch.int64, device=self.world.device) for _ in range(self.world.size)]
        dist.all_gather(lengths, torch.tensor([own.numel()], device=self.world.device))
        counts = [int(length.item()) for length in lengths]
        padded = torch.nn.functional.pad(own, (0, max(counts) - own.numel()))
        messages = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(messages, padded)
        found = zip(messages, counts, strict=True)
        return [from_bytes(message[:count].cpu().numpy().tobytes()) for message, count in found]

    def broadcast(self, value: Any) -> Any:
        """The leader's plain value: see `trek.wire.values`. Tensors are sent from where they lie, piece by piece."""
        own = Message.of(value) if self.world.is_leader else None
        length = torch.tensor([len(own.head) if own is not None else 0], device=self.world.device)
        dist.broadcast(length, src=0)
        head = torch.empty(int(length.item()), dtype=torch.uint8)
        if own is not None:
            head.copy_(torch.frombuffer(bytearray(own.head), dtype=torch.uint8))
        head = head.to(self.world.device)
        dist.broadcast(head, src=0)
        message = own or Message.empty(head.cpu().numpy().tobytes())
        for piece in pieces(message.parts, most_bytes=_PIECE_BYTES):
            sent = torch.cat([part.to(self.world.device) for part in piece]) if own is not None else None
            buffer = torch.empty(sum(map(len, piece)), dtype=torch.uint8, device=self.world.device)
            dist.broadcast(buffer if sent is None else sent, src=0)
            if sent is None:
                for part, received in zip(piece, torch.split(buffer, [*map(len, piece)]), strict=True):
                    part.copy_(received)
        return message.value

    def any(self, flag: bool) -> bool:
        """One small all-reduce."""
        count = torch.tensor([float(flag)], device=self.world.device)
        dist.all_reduce(count)
        return bool(count.item())

    def barrier(self) -> None:
        """Wait for every rank."""
        dist.barrier()

    def start_equal(self, model: nn.Module) -> None:
        """Replace parameters and buffers by the leader's, one after the other."""
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if is_lazy(tensor):
                raise InputError(
                    f"the shape of {name!r} is not known yet, so processes cannot start from equal weights. Run the "
                    "model on one batch before it is added."
                )
            if tensor.numel() and tensor.layout is torch.strided:
                CollectiveStrategy.copy_leaders(self, [tensor])

    def buffer_sync(self, model: nn.Module) -> Callable[[], None] | None:
        """See `moving_buffers`."""
        buffers = MovingBuffers(
            model, any_rank=self._any_late, gather=self.gather, copy_leaders=lambda them: self.copy_leaders(them)
        )
        self._moving.append((model, buffers))
        return buffers.sync if buffers.is_needed and self.world.is_distributed else None

    def sync_buffers(self, model: nn.Module) -> None:
        """Copy the leader's buffers, all of them but sparse ones, which are constants of the model."""
        if buffers := [buffer for buffer in model.buffers() if buffer.layout is torch.strided]:
            self.copy_leaders(buffers)
        self._mark_buffers(model)

    def load_model_state(self, model: nn.Module, state: dict[str, torch.Tensor]) -> None:
        """On every rank; buffers that are restored have not been moved by training."""
        super().load_model_state(model, state)
        self._mark_buffers(model)

    def follow_restored(self, model: nn.Module) -> None:
        """Buffers that are put back have not been moved by training."""
        self._mark_buffers(model)

    def _mark_buffers(self, model: nn.Module) -> None:
        for known, buffers in self._moving:
            if known is model:
                buffers.mark()

    def _any_late(self, flag: bool) -> bool:
        """`any`; on a GPU the answer to the question before, because waiting for this one would stall the device."""
        if self.world.device.type == "cpu":
            return self.any(flag)
        count = torch.tensor([float(flag)], device=self.world.device)
        dist.all_reduce(count)
        answer = torch.empty(1, pin_memory=True).copy_(count, non_blocking=True)
        is_there = torch.cuda.Event()  # type: ignore[no-untyped-call]
        is_there.record()
        before, self._asked = self._asked, (is_there, answer)
        if before is None:
            return False
        before[0].synchronize()
        return bool(before[1].item())

    @torch.no_grad()
    def copy_leaders(self, tensors: list[torch.Tensor]) -> None:
        """Replace the content of tensors, of the same shapes on every rank, by the leader's."""
        message = flat_bytes(tensors)
        dist.broadcast(message, src=0)
        copy_bytes(message, tensors)


def flat_bytes(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """The content of tensors of any types as one message."""
    return torch.cat([tensor.detach().contiguous().reshape(-1).view(torch.uint8) for tensor in tensors])


@torch.no_grad()
def copy_bytes(message: torch.Tensor, tensors: Sequence[torch.Tensor]) -> None:
    """Copy the result of `flat_bytes` into tensors of the same shapes and types."""
    for part, tensor in zip(torch.split(message, [tensor.nbytes for tensor in tensors]), tensors, strict=True):
        tensor.copy_(part.clone().view(tensor.dtype).view(tensor.shape))


def pieces(parts: Iterable[torch.Tensor], *, most_bytes: int) -> Iterator[list[torch.Tensor]]:
    """Views of flat bytes, in their order, in groups of at most `most_bytes`."""
    group: list[torch.Tensor] = []
    left = most_bytes
    for part in parts:
        while len(part):
            taken, part = part[:left], part[left:]
            group.append(taken)
            left -= len(taken)
            if not left:
                yield group
                group, left = [], most_bytes
    if group:
        yield group
