"""`twister2deepnet.deepnet.torch.distributed`: torch's collectives among the workers, without MPI in torch.

Also stands in for `torch.distributed` in scripts that ask for its backend `mpi`, which torch is rarely built with: the
workers meet as Trek's do. What is not here is torch's, among the same workers.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from trek.compat.twister2.workers import Workers
from trek.errors import InputError

ReduceOp = dist.ReduceOp


def __getattr__(name: str) -> Any:
    if name.startswith("__"):  # what belongs to the module itself
        raise AttributeError(name)
    return getattr(dist, name)


def init_process_group(backend: str = "gloo", rank: int | None = None, world_size: int | None = None, **_: Any) -> None:
    """Join the other workers. The rank and the size must be those that the launcher set."""
    world = Workers.open().world
    if rank not in (None, world.rank) or world_size not in (None, world.size):
        raise InputError(
            f"this process is worker {world.rank} of {world.size}, but the script says {rank} of {world_size}. "
            f"Start it with --workers {world_size}."
        )


def get_rank() -> int:
    """This worker."""
    return Workers.open().world.rank


def get_world_size() -> int:
    """Number of workers."""
    return Workers.open().world.size


def all_reduce(tensor: torch.Tensor, op: Any = ReduceOp.SUM) -> torch.Tensor:
    """Reduce a tensor over all workers, in place; also returned."""
    if get_world_size() > 1:
        dist.all_reduce(tensor, op=op)
    return tensor


def barrier() -> None:
    """Wait for all workers."""
    Workers.open().gather(None)


def destroy_process_group() -> None:
    """Leave the others."""
    Workers.open().close()
