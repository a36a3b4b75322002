"""RayOptions: what can be set about gangs on Ray, the resources their members take, and what a cluster lacks. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from trek.engines.base import WORKER, GangSpec, Role
from trek.errors import ConfigError

PlacementRule = Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"]
Resources = Mapping[str, float]
DEFAULT_WAIT_S = 300.0
_ROUNDING = 1e-6
"""Ray counts in ten-thousandths."""


@dataclass(frozen=True)
class RayOptions:
    """How an engine uses its cluster."""

    address: str | None = None
    """`host:port` of the cluster's head; None for RAY_ADDRESS, or a cluster that runs on this machine."""
    placement: PlacementRule = "PACK"
    """How the workers of a gang share nodes: few nodes, many, or strictly one node for all or a node for each."""
    cpus: float | None = None
    """CPUs of each worker; None for those of the gang's spec."""
    gpus: float | None = None
    """GPUs of each worker, also a fraction; None for those of the spec, and 1 where the cluster has GPUs."""
    memory_gb: float = 0.0
    """Memory that is reserved for each worker."""
    resources: Resources = field(default_factory=dict)
    """Custom resources that each worker takes."""
    send_trek: bool = False
    """Whether nodes get the Trek of this process, whatever is installed there."""
    wait_s: float | None = None
    """How long to wait for room. None: 5 minutes for a cluster that is busy, none for one that is too small."""

    def __post_init__(self) -> None:
        rules = get_args(PlacementRule)
        if self.placement not in rules:
            raise ConfigError(f"placement must be one of {', '.join(rules)}, got {self.placement!r}.")
        if not isinstance(self.resources, Mapping):
            raise ConfigError(f"resources must be a mapping of names to amounts, got {self.resources!r}.")
        if not isinstance(self.send_trek, bool):
            raise ConfigError(f"send_trek must be true or false, got {self.send_trek!r}.")
        amounts = {"cpus": self.cpus, "gpus": self.gpus, "memory_gb": self.memory_gb, "wait_s": self.wait_s}
        for name, amount in {**amounts, **self.resources}.items():
            if amount is not None and (isinstance(amount, bool) or not isinstance(amount, int | float) or amount < 0):
                raise ConfigError(f"{name} must be a number of at least 0, got {amount!r}.")

    @property
    def is_strict(self) -> bool:
        """Whether a gang runs as the rule says, or not at all."""
        return self.placement.startswith("STRICT_")

    def demand(self, role: str, one: Role, *, has_gpus: bool) -> dict[str, float]:
        """What one member of a role takes, in Ray's names. Members beside the workers take no slot of theirs."""
        if role != WORKER:
            return _positive({"GPU": one.gpus})
        default = one.gpus or float(has_gpus)
        wanted = {
            "CPU": one.cpus if self.cpus is None else self.cpus,
            "GPU": default if self.gpus is None else self.gpus,
            "memory": self.memory_gb * 2**30,
        }
        return _positive({**wanted, **self.resources})


def demands_of(spec: GangSpec, options: RayOptions, *, has_gpus: bool) -> dict[str, list[dict[str, float]]]:
    """What every member of a gang takes, by role."""
    return {
        name: [options.demand(name, role, has_gpus=has_gpus)] * role.count for name, role in spec.all_roles().items()
    }


def num_fitting(demand: Resources, node: Resources) -> int:
    """How many members with this demand a node with these resources holds when nothing else runs there."""
    counted = demand or {"CPU": 1.0}
    return min(int(node.get(name, 0.0) / amount + _ROUNDING) for name, amount in counted.items())


def find_missing(demands: Sequence[Resources], nodes: Sequence[Resources], *, placement: str) -> str:
    """Why nodes with these resources cannot hold members with these demands; empty if they can, or it is not known.

    Fills nodes in their order with the largest members first, which for members that are equal is exact.
    """
    totals: dict[str, float] = {}
    for node in nodes:
        for name, amount in node.items():
            totals[name] = totals.get(name, 0.0) + amount
    for name in sorted({name for demand in demands for name in demand}):
        wanted, has = sum(demand.get(name, 0.0) for demand in demands), totals.get(name, 0.0)
        if wanted > has:
            return f"{_amount(name, wanted)} needed, and the cluster has {_amount(name, has)}"
    if placement == "STRICT_SPREAD" and len(demands) > len(nodes):
        return f"{len(demands)} nodes are needed for STRICT_SPREAD, and the cluster has {len(nodes)}"
    bins = [sum_of(demands)] if placement == "STRICT_PACK" else sorted(demands, key=lambda one: -sum(one.values()))
    free = [dict(node) for node in nodes]
    for demand in bins:
        room = next((node for node in free if _has_room(node, demand)), None)
        if room is None:
            return f"no node has room for {describe(demand)} at once"
        for name, amount in demand.items():
            room[name] -= amount
    return ""


def _has_room(node: Resources, demand: Resources) -> bool:
    return all(node.get(name, 0.0) >= amount for name, amount in demand.items())


def sum_of(demands: Sequence[Resources]) -> dict[str, float]:
    """The sum of all demands."""
    names = {name for demand in demands for name in demand}
    return {name: sum(demand.get(name, 0.0) for demand in demands) for name in sorted(names)}


def describe(demand: Resources) -> str:
    """A demand in words."""
    return ", ".join(_amount(name, amount) for name, amount in demand.items()) or "nothing"


def _positive(wanted: Mapping[str, float]) -> dict[str, float]:
    return {name: float(amount) for name, amount in wanted.items() if amount}


def _amount(name: str, amount: float) -> str:
    return f"{amount / 2**30:g} GB of memory" if name == "memory" else f"{amount:g} {name}"
