"""What a member learns of the roles of its gang: the variables described in `trek.engines.base`. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trek.engines.base import WORKER
from trek.engines.hosts import AssignedRank
from trek.world.world import World

WORLD_NAMES = frozenset(World().environment())
"""What only a worker has: another member that inherited these would act as a rank."""


def role_environment(assigned: AssignedRank, *, addresses: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The variables of one member. `addresses` are those of the members of every role but the workers'."""
    variables = {f"TREK_{role.upper()}_ADDRESSES": ",".join(known) for role, known in addresses.items()}
    variables["TREK_ROLE"] = assigned.role
    if assigned.role != WORKER:
        variables |= {"TREK_ROLE_RANK": str(assigned.rank), "TREK_ROLE_SIZE": str(assigned.size)}
    return variables
