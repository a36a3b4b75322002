"""The local engine: gangs as processes on this machine, and over ssh on the machines of a hostfile.

Every member has an agent (`trek.engines.agent`), which is why members die with this process however it dies, why a
member's orphans are found, and why here and elsewhere are one path. The cost is one small process per member.
"""

from __future__ import annotations

import os
import secrets
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from trek.engines import agent
from trek.engines.base import Engine, Exit, GangSpec, OutputLine
from trek.engines.gang import LocalGang
from trek.engines.hosts import Host, Placement, assign_ranks, is_loopback, is_this_machine, read_hostfile
from trek.engines.member import AgentMember, Member
from trek.engines.returned import ReturnedMember
from trek.engines.ssh import portable_environment, reachable_address, ssh_command
from trek.errors import InputError, OutsideError
from trek.world.world import World


class LocalEngine(Engine):
    """Processes on this machine, or on the hosts of a hostfile."""

    name = "local"

    def start(
        self,
        spec: GangSpec,
        *,
        on_line: Callable[[OutputLine], None] | None = None,
        on_exit: Callable[[Exit], None] | None = None,
    ) -> LocalGang:
        """Start `spec.num_workers` members and return at once."""
        starter = _Starter(_checked(spec, num_gpus=count_gpus(os.environ)), environ=dict(os.environ))
        members: list[Member] = []
        try:
            for place in starter.assign(spec.num_workers):
                members.append(starter.start_member(place))
        except BaseException:
            for member in members:
                member.kill()
                member.close()
            raise
        return LocalGang(
            members, start_member=starter.start_member, assign=starter.assign, on_line=on_line, on_exit=on_exit
        )

    def attach(
        self,
        output_dir: Path,
        *,
        on_line: Callable[[OutputLine], None] | None = None,
        on_exit: Callable[[Exit], None] | None = None,
    ) -> LocalGang:
        """The gang that an earlier process started with this `output_dir`, ended members included.

        Its output is read from the beginning. It can be waited for and stopped, and not grow.
        """
        members = [ReturnedMember(path) for path in sorted(output_dir.glob("rank_*.json"))]
        if not members:
            raise InputError(f"no gang was started with output_dir {str(output_dir)!r}. Start one first.")
        places = [Placement(member.rank, member.host, member.rank, len(members), len(members)) for member in members]

        def assign(num_workers: int) -> list[Placement]:
            if num_workers > len(places):
                raise InputError("a gang that was found again cannot grow. Stop it and start a new one.")
            return places[:num_workers]

        def start_member(place: Placement) -> Member:
            raise AssertionError(f"rank {place.rank} is already there")

        return LocalGang(members, start_member=start_member, assign=assign, on_line=on_line, on_exit=on_exit)

    def slots(self) -> int:
        """GPUs where there are any, else the CPU cores this process may use."""
        return count_gpus(os.environ) or len(os.sched_getaffinity(0))


class _Starter:
    """Turns places into running members; holds what all members of a gang share."""

    def __init__(self, spec: GangSpec, *, environ: Mapping[str, str]) -> None:
        self._spec = spec
        self._environ = environ
        self._hosts = read_hostfile(spec.hostfile) if spec.hostfile else None
        if spec.output_dir is not None:
            if any(not is_this_machine(host.name) for host in self._hosts or []):
                raise InputError(
                    "output_dir works with members on this machine only. Leave one of it and hostfile out."
                )
            spec.output_dir.mkdir(parents=True, exist_ok=True)
        self._master_addr = self._find_address()
        self._master_port = _free_port()

    def assign(self, num_workers: int) -> list[Placement]:
        """Where each rank runs."""
        return assign_ranks(self._hosts or [Host(socket.gethostname(), num_workers)], num_workers)

    def start_member(self, place: Placement) -> Member:
        """Start the agent of one rank, and through it the member."""
        is_here = self._hosts is None or is_this_machine(place.host)
        own_agent = [sys.executable, "-I", "-S", agent.__file__]
        command = own_agent if is_here else ssh_command(place.host, environ=self._environ)
        try:
            return AgentMember(place, agent_command=command, request=self._request(place, is_here=is_here))
        except FileNotFoundError as error:
            raise OutsideError(f"{command[0]!r} cannot be started: {error.strerror}. Set TREK_SSH or PATH.") from error

    def _request(self, place: Placement, *, is_here: bool) -> dict[str, Any]:
        spec = self._spec
        inherited = self._environ if is_here else portable_environment(self._environ)
        request = {
            "argv": list(spec.command),
            "env": {**inherited, "PYTHONUNBUFFERED": "1", **spec.env, **self._world(place).environment()},
            "inherit_env": not is_here,
            "cwd": str((spec.cwd or Path.cwd()).absolute()),
            "local_size": place.local_size,
            "num_threads": int(spec.cpus_per_worker) if spec.cpus_per_worker > 1 else None,
        }
        if spec.output_dir is not None:
            stem = str(spec.output_dir.absolute() / f"rank_{place.rank}")
            request["log_path"], request["state_path"] = f"{stem}.log", f"{stem}.json"
            request["state"] = {"rank": place.rank, "host": place.host}
        return request

    def _world(self, place: Placement) -> World:
        return World(
            rank=place.rank,
            size=place.size,
            local_rank=place.local_rank,
            local_size=place.local_size,
            master_addr=self._master_addr,
            master_port=self._master_port,
        )

    def _find_address(self) -> str:
        """An address of rank 0's machine that every member can reach."""
        used = [place.host for place in self.assign(self._spec.num_workers)] if self._hosts else []
        elsewhere = [name for name in used if not is_this_machine(name)]
        if not elsewhere:
            return "127.0.0.1"
        first = used[0].rpartition("@")[2]
        return reachable_address(elsewhere[0]) if is_loopback(first) else first


def _checked(spec: GangSpec, *, num_gpus: int) -> GangSpec:
    if spec.num_workers < 1:
        raise InputError(f"a gang needs at least 1 worker, got {spec.num_workers}.")
    if not spec.command:
        raise InputError("a gang needs a command to run, got an empty one.")
    if spec.cwd is not None and not spec.cwd.is_dir() and spec.hostfile is None:
        raise InputError(f"the working directory {str(spec.cwd)!r} does not exist. Create it, or name another.")
    wanted = spec.gpus_per_worker * spec.num_workers
    if wanted > num_gpus and spec.hostfile is None:
        raise InputError(
            f"{spec.num_workers} workers with {spec.gpus_per_worker:g} GPUs each need {wanted:g}, "
            f"and this machine has {num_gpus}. Ask for fewer workers or fewer GPUs."
        )
    return replace(spec, command=[os.fspath(part) for part in spec.command])


def count_gpus(environ: Mapping[str, str]) -> int:
    """NVIDIA GPUs this process may use, without loading torch to ask."""
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    present = len([path for path in Path("/dev").glob("nvidia[0-9]*") if path.name[6:].isdigit()])
    if visible is None:
        return present
    named = [name for name in visible.split(",") if name.strip() and name.strip() != "-1"]
    return min(len(named), present)


def _free_port() -> int:
    """A port nobody listens on, below those that systems hand out by themselves.

    Ports handed out for outgoing connections could be taken between now and the first rank's listening.
    """
    for _ in range(50):
        port = 20000 + secrets.randbelow(12000)  # not from `random`: the user may have seeded it
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port
    raise OutsideError("no free port was found between 20000 and 32000. Close programs that listen there.")
