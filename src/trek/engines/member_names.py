"""What the members and roles of a gang may be called, and what their files are called. For every engine."""

from __future__ import annotations

import re

from trek.engines.base import WORKER, GangSpec
from trek.errors import InputError

_ROLE_NAME = re.compile(r"[a-z][a-z0-9_]*")


def member_stem(role: str, rank: int) -> str:
    """The name of a member's files in the `output_dir`, without suffix."""
    return f"rank_{rank}" if role == WORKER else f"{role}_{rank}"


def check_spec(spec: GangSpec) -> None:
    """Refuse what no engine can run."""
    for name, role in spec.all_roles().items():
        if role.count < 1:
            raise InputError(f"a gang needs at least 1 {name}, got {role.count}.")
        if not role.command:
            raise InputError(f"a gang needs a command to run, got an empty one for the role {name!r}.")
        if _ROLE_NAME.fullmatch(name) is None:
            raise InputError(f"{name!r} is not a valid name of a role. Use lower-case letters, digits and '_'.")
