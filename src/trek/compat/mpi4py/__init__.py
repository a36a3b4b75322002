"""The few names of mpi4py that Twister2's scripts use, where mpi4py is not installed: who and how many there are."""

from __future__ import annotations

from trek.compat.mpi4py import MPI

__all__ = ["MPI"]
