"""Hosts: reading Open MPI style hostfiles, assigning every member to a host. Starts nothing; see `trek.engines.ssh`."""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trek.errors import InputError
from trek.world.addresses import is_loopback

_LINE_HELP = "Write lines such as 'node1 slots=4'."


@dataclass(frozen=True)
class Host:
    """A machine and how many workers it takes."""

    name: str
    slots: int


@dataclass(frozen=True)
class AssignedRank:
    """Which host one member is to run on, and its place among the members of its role there."""

    rank: int
    host: str
    local_rank: int
    local_size: int
    size: int
    role: str = "worker"
    node: int = 0
    num_nodes: int = 1


def read_hostfile(path: Path) -> list[Host]:
    """The hosts of a file in its order; a host named twice has the sum of its slots, and one slot if none are given."""
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise InputError(f"hostfile {str(path)!r} cannot be read: {error.strerror}. Name an existing file.") from error
    slots: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        text = line.partition("#")[0].strip()
        if text:
            host = _parse_line(text, where=f"{path}:{number}")
            slots[host.name] = slots.get(host.name, 0) + host.slots
    if not slots:
        raise InputError(f"hostfile {str(path)!r} names no host. {_LINE_HELP}")
    return [Host(name, count) for name, count in slots.items()]


def assign_ranks(hosts: Sequence[Host], num_workers: int) -> list[AssignedRank]:
    """Fill the hosts in their order, so that adding a worker moves no other."""
    available = sum(host.slots for host in hosts)
    if available < num_workers:
        raise InputError(
            f"{num_workers} workers were asked for, and the hosts have {available} slots. "
            "Raise slots= in the hostfile, or ask for fewer workers."
        )
    places: list[AssignedRank] = []
    for node, host in enumerate(hosts):
        here = min(host.slots, num_workers - len(places))
        places += [
            AssignedRank(len(places) + index, host.name, index, here, num_workers, node=node) for index in range(here)
        ]
    num_nodes = places[-1].node + 1 if places else 0
    return [replace(place, num_nodes=num_nodes) for place in places]


def spread(hosts: Sequence[Host], count: int, *, role: str) -> list[AssignedRank]:
    """Members of another role than the workers', over the hosts in turn; they take no slots."""
    assigned: list[AssignedRank] = []
    for rank in range(count):
        host = hosts[rank % len(hosts)].name
        local_size = len(range(rank % len(hosts), count, len(hosts)))
        assigned.append(AssignedRank(rank, host, rank // len(hosts), local_size, count, role))
    return assigned


def is_this_machine(name: str) -> bool:
    """Whether `name` is a spelling of the machine this process runs on."""
    own = {socket.gethostname(), socket.getfqdn()}
    own |= {one.partition(".")[0] for one in own}
    return name in own or is_loopback(name)


def _parse_line(text: str, *, where: str) -> Host:
    name, *settings = re.sub(r"\s*=\s*", "=", text).split()
    known = {"slots": 0, "max_slots": 0}
    if match := re.fullmatch(r"([^:]+):(\d+)", name):
        name, known["slots"] = match[1], _positive(match[2], where=where)
    if name.startswith("-") or "=" in name:
        raise InputError(f"{where}: {name!r} is not a host name. {_LINE_HELP}")
    for setting in settings:
        key, _, value = setting.partition("=")
        key = key.replace("-", "_")
        if key not in known:
            raise InputError(f"{where}: {setting!r} is not understood: only slots= and max_slots= are. {_LINE_HELP}")
        known[key] = _positive(value, where=where)
    slots = known["slots"] or 1
    if known["max_slots"] and slots > known["max_slots"]:
        raise InputError(f"{where}: slots={slots} is more than max_slots={known['max_slots']}. Lower slots.")
    return Host(name, slots)


def _positive(text: str, *, where: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise InputError(f"{where}: {text!r} is not a number of slots, at least 1. {_LINE_HELP}")
    return int(text)
