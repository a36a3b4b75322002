"""Batch sizes: `batch_size` counts samples per process, as in torch; `global_batch_size` counts them over all.

The global batch is what a model learns from, so it is what stays when the number of processes changes: any number of
them shares any global batch out, unevenly where it cannot be even, and weighs what they computed by samples.
"""

from __future__ import annotations

from typing import Any

from trek.errors import InputError
from trek.world import World


class PerSlotBatchSize(int):
    """One process's part of a global batch, rounded down; a loader that is given it shares out the whole of it."""

    global_batch_size: int

    def __new__(cls, global_batch_size: int, *, num_workers: int) -> PerSlotBatchSize:
        made = super().__new__(cls, global_batch_size // num_workers)
        made.global_batch_size = global_batch_size
        return made


def check_batch_size(size: Any, *, name: str) -> None:
    """Raise `InputError` unless `size` is a whole number of at least 1."""
    if isinstance(size, bool) or not hasattr(size, "__index__") or size < 1:
        raise InputError(f"{name} must be a whole number of at least 1, got {size!r}.")


def global_size(batch_size: int, global_batch_size: int | None, world: World) -> int:
    """Samples of one batch over all processes of `world`."""
    if global_batch_size is None:
        global_batch_size = getattr(batch_size, "global_batch_size", None)
    if global_batch_size is None:
        return batch_size * world.batch_shares
    if global_batch_size < world.batch_shares:
        raise InputError(
            f"a global batch of {global_batch_size} cannot be shared by {world.batch_shares} processes: each needs at "
            "least one sample. Raise the global batch size, or use fewer processes."
        )
    return global_batch_size


def share_size(global_batch_size: int, world: World) -> int:
    """Samples of a full global batch that belong to this rank."""
    return len(range(world.rank, global_batch_size, world.size))
