"""What Determined's distributed contexts say of the machine of a process, and pass among its processes.

All machines have the same number of processes, whose ranks follow each other.
"""

from __future__ import annotations

from typing import Any


class MachineContext:
    """For a class with `rank`, `size`, `local_rank`, `local_size` and `allgather`."""

    rank: int
    size: int
    local_rank: int
    local_size: int

    @property
    def cross_rank(self) -> int:
        """The number of this machine, from 0."""
        return self.rank // self.local_size

    @property
    def cross_size(self) -> int:
        """Number of machines."""
        return -(-self.size // self.local_size)

    def get_local_rank(self) -> int:
        """The rank on this machine."""
        return self.local_rank

    def get_num_agents(self) -> int:
        """Number of machines."""
        return self.cross_size

    def allgather(self, stuff: Any) -> list[Any]:
        """What every rank of the job passed, by rank."""
        raise NotImplementedError

    def allgather_local(self, stuff: Any) -> list[Any]:
        """What the ranks of this machine passed; all ranks of the job call it together."""
        first = self.rank - self.local_rank
        return self.allgather(stuff)[first : first + self.local_size]

    def gather_local(self, stuff: Any) -> list[Any] | None:
        """The same on the first rank of each machine; None elsewhere."""
        every = self.allgather_local(stuff)
        return every if self.local_rank == 0 else None

    def broadcast_local(self, stuff: Any = None) -> Any:
        """What the first rank of this machine passed."""
        return self.allgather_local(stuff)[0]


class TrialDistributedContext(MachineContext):
    """The `distributed` of a Trial's context, with these."""

    def __init__(self, of_trial: Any) -> None:
        self._of_trial = of_trial

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of_trial, name)

    def allgather(self, stuff: Any) -> list[Any]:
        """What every rank passed, by rank."""
        return list(self._of_trial.allgather(stuff))
