"""What a member learns of the roles of its gang: the variables described in `trek.engines.base`. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trek.engines.base import WORKER
from trek.engines.hosts import AssignedRank
from trek.world.world import World

_TORCHRUN_NAMES = (
    "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_NAME", "ROLE_RANK", "ROLE_WORLD_SIZE", "TORCHELASTIC_MAX_RESTARTS",
    "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE",
)  # fmt: skip
WORLD_NAMES = frozenset({*World().environment(), *_TORCHRUN_NAMES})
"""What only a worker has: another member that inherited these would act as a rank."""


def role_environment(assigned: AssignedRank, *, addresses: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The variables of one member. `addresses` are those of the members of every role but the workers'."""
    variables = {f"TREK_{role.upper()}_ADDRESSES": ",".join(known) for role, known in addresses.items()}
    variables["TREK_ROLE"] = assigned.role
    if assigned.role != WORKER:
        variables |= {"TREK_ROLE_RANK": str(assigned.rank), "TREK_ROLE_SIZE": str(assigned.size)}
    return variables


def torchrun_environment(assigned: AssignedRank, *, job: str) -> dict[str, str]:
    """What torchrun tells a worker besides its World. Gangs have one role in torchrun's sense, and no restarts."""
    values = (assigned.node, assigned.num_nodes, "default", assigned.rank, assigned.size, 0, 0, job, False)
    return {name: str(value) for name, value in zip(_TORCHRUN_NAMES, values, strict=True)}
