"""The nodes of a Ray cluster before work is sent to them: whether they have equal versions and room for it."""

from __future__ import annotations

import platform
from typing import Any

import ray

from trek._version import __version__
from trek.engines.ray.connection import living_nodes
from trek.errors import InputError


def versions() -> dict[str, str]:
    """What must be equal on all nodes: functions and rows are passed between them."""
    return {"trek": __version__, "python": platform.python_version(), "ray": ray.__version__}


def require_same_versions() -> None:
    """Refuse a cluster with a node that cannot load Trek, or another version of it, of Python or of Ray."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    asked: dict[str, Any] = {}
    for node in living_nodes():
        place = NodeAffinitySchedulingStrategy(node["NodeID"], soft=True)
        asked[node["NodeManagerAddress"]] = _versions.options(scheduling_strategy=place).remote()
    for address, ref in asked.items():
        try:
            check_versions(ray.get(ref), node=address)
        except ray.exceptions.RayTaskError as error:
            raise InputError(
                f"node {address} of the Ray cluster cannot load Trek: {error.cause}. Install trek {__version__} "
                "there, or set send_trek."
            ) from error


def check_versions(found: dict[str, str], *, node: str) -> None:
    """Refuse versions that differ from those of this process."""
    for name, version in versions().items():
        if found[name] != version:
            raise InputError(
                f"node {node} of the Ray cluster has {name} {found[name]}, and this process has {name} {version}. "
                f"Install the same version of {name} on both."
            )


def num_tasks(*, cpus: float, gpus: float) -> int:
    """How many tasks that ask for so much the cluster can run at a time."""
    found = cluster_resources()
    fits = [found.get(name, 0) / asked for name, asked in (("CPU", cpus), ("GPU", gpus)) if asked]
    if fits and min(fits) < 1:
        raise InputError(
            f"the Ray cluster cannot hold one data task: it needs {cpus:g} CPUs and {gpus:g} GPUs, and the cluster has "
            f"{found.get('CPU', 0):g} CPUs and {found.get('GPU', 0):g} GPUs."
        )
    return int(min(fits, default=1))


def cluster_resources() -> dict[str, float]:
    """What all living nodes have together, by name."""
    return dict(ray.cluster_resources())  # type: ignore[no-untyped-call]


@ray.remote(num_cpus=0)
def _versions() -> dict[str, str]:
    return versions()
