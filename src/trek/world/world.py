"""World: this process among its peers. Knows no process group and starts nothing; see `trek.strategies`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trek.errors import InputError

if TYPE_CHECKING:
    import torch


MIN_SECRET_CHARS = 16


@dataclass(frozen=True)
class World:
    """Rank and size, here and on this machine. One process alone is a World of size 1."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    master_addr: str = "127.0.0.1"
    master_port: int = 0
    device_name: str = "auto"
    secret: str = field(default="", repr=False)
    """Known to the processes of this job alone: they prove it to each other before they exchange anything else."""
    generation: int = 0
    """Counts the Worlds of a job whose processes come and go; 0 = its processes stay the same. From 1 on, ranks meet at
    the job's coordinator instead of at rank 0."""
    max_size: int = 0
    """How large the World of such a job may become; 0 = it stays as it is."""

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.size:
            raise InputError(
                f"rank {self.rank} does not exist in a world of {self.size}: ranks run from 0 to size - 1."
            )
        if not 0 <= self.local_rank < self.local_size <= self.size:
            raise InputError(
                f"local rank {self.local_rank} of {self.local_size} does not fit in a world of {self.size}. "
                "Check LOCAL_RANK and LOCAL_WORLD_SIZE."
            )
        if 0 < len(self.secret) < MIN_SECRET_CHARS:
            raise InputError(
                f"TREK_JOB_SECRET must have at least {MIN_SECRET_CHARS} characters, got {len(self.secret)}. "
                "Unset it, or set it to random characters that only this job's processes know."
            )

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ) -> World:
        """Read torchrun's, Open MPI's, MPICH's, Slurm's or Trek's variables; solo when there are none."""
        from trek.world.environments import read_world
        from trek.world.mpich import find_job

        return read_world(environ, find_mpich_job=find_job)

    @property
    def is_leader(self) -> bool:
        """The one process that prints, reports and writes shared files; none before the first generation."""
        return self.rank == 0 and not self.is_preparing

    @property
    def is_preparing(self) -> bool:
        """Whether processes come and go here, and this one does not belong to a generation yet."""
        return self.max_size > 0 and self.generation == 0

    @property
    def is_distributed(self) -> bool:
        """More than one process."""
        return self.size > 1

    @property
    def batch_shares(self) -> int:
        """How many processes a batch size per process refers to: the global batch stays when processes come and go."""
        return self.max_size or self.size

    @property
    def num_nodes(self) -> int:
        """Machines in this world, taking every machine to hold as many processes as this one."""
        return -(-self.size // self.local_size)

    @property
    def device(self) -> torch.device:
        """The device this process computes on: the GPU of its local rank where there is one, else the CPU."""
        from trek.world.devices import choose_device

        return choose_device(self.device_name, local_rank=self.local_rank)

    def environment(self) -> dict[str, str]:
        """The variables that make another process read this World back, torchrun's spelling included."""
        return {
            "RANK": str(self.rank),
            "WORLD_SIZE": str(self.size),
            "LOCAL_RANK": str(self.local_rank),
            "LOCAL_WORLD_SIZE": str(self.local_size),
            "MASTER_ADDR": self.master_addr,
            "MASTER_PORT": str(self.master_port),
            "TREK_RANK": str(self.rank),
            "TREK_WORLD_SIZE": str(self.size),
            "TREK_LOCAL_RANK": str(self.local_rank),
            "TREK_LOCAL_WORLD_SIZE": str(self.local_size),
            "TREK_MEETING": f"{self.master_addr}:{self.master_port}",
            "TREK_JOB_SECRET": self.secret,
        }
