"""`mpi4py.MPI`: the communicator of all processes, over `trek.World`."""

from __future__ import annotations

import trek


class Comm:
    """All processes of the job."""

    def Get_rank(self) -> int:  # noqa: N802 - mpi4py's name
        """0 to size - 1."""
        return trek.World.from_env().rank

    def Get_size(self) -> int:  # noqa: N802 - mpi4py's name
        """Number of processes."""
        return trek.World.from_env().size


COMM_WORLD = Comm()
