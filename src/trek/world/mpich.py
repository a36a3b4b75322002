"""Which job of MPICH this process belongs to. Its variables do not say, so two jobs would meet at one port."""

from __future__ import annotations

_PROXY = "hydra_pmi_proxy"
"""The process of MPICH that starts all ranks of a job on one machine."""


def find_job() -> str | None:
    """The id of the MPICH process above this one; None if there is none."""
    import psutil

    above = psutil.Process().parents()
    return next((f"mpich-{process.pid}" for process in above if process.name() == _PROXY), None)
