"""LocalStarter: turns assigned ranks into running members; holds what all members of one local gang share."""

from __future__ import annotations

import binascii
import os
import secrets
import socket
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trek.engines import agent
from trek.engines.agent_process import AgentProcess, SpawnedAgent
from trek.engines.base import WORKER, GangSpec
from trek.engines.free_port import find_free_port
from trek.engines.hosts import AssignedRank, Host, assign_ranks, is_this_machine, read_hostfile, spread
from trek.engines.member import AgentMember, Member
from trek.engines.member_names import member_stem
from trek.engines.roles import WORLD_NAMES, role_environment, torchrun_environment
from trek.engines.ssh import portable_environment, reachable_address, ssh_command, without_share
from trek.engines.state_files import read_state, write_state
from trek.engines.warm.rules import why_not_warm
from trek.engines.warm.warm_agent import WarmParents
from trek.errors import InputError, OutsideError
from trek.system.plain_files import remove_tree
from trek.world.addresses import is_loopback
from trek.world.environments import LAUNCHER_NAMES
from trek.world.world import World

MEMBERS = "members.json"
"""How many members of each role a gang with an `output_dir` has; what `attach` looks for first."""
MEETING = "meeting.json"
"""What the members of a gang with an `output_dir` meet by, their secret included: only its owner can read it."""

_LOADER = ("PATH", "LD_LIBRARY_PATH")
"""What an interpreter needs to start."""


class LocalStarter:
    """See the module."""

    def __init__(
        self, spec: GangSpec, *, environ: Mapping[str, str], warm: WarmParents | None = None, is_resumed: bool = False
    ) -> None:
        """`is_resumed`: for a gang that runs already, started with this spec by another process."""
        self._spec = spec
        self._warm = warm
        self._roles = spec.all_roles()
        self._environ = environ
        self._hosts = read_hostfile(spec.hostfile) if spec.hostfile else None
        if spec.user is not None and self._hosts is not None:
            raise InputError("members run as another user on this machine only. Leave one of user and hostfile out.")
        if spec.output_dir is not None and any(not is_this_machine(host.name) for host in self._hosts or []):
            raise InputError("output_dir works with members on this machine only. Leave one of it and hostfile out.")
        self._counts = {role: one.count for role, one in self._roles.items()}
        if is_resumed and spec.output_dir is not None:
            self._counts = read_state(spec.output_dir / MEMBERS)
        else:
            self._write_counts()
        used = [one.host for role, count in self._counts.items() for one in self.assign(role, count)]
        self._elsewhere = [host for host in used if not is_this_machine(host)] if self._hosts else []
        self._master_addr = self._reachable(used[0])
        self._master_port = find_free_port()
        self._secret = spec.secret or secrets.token_hex(32)
        self._job = secrets.token_hex(8)
        self._addresses: dict[str, list[str]] = {}
        if is_resumed:
            self._read_meeting()
        for role, count in self._counts.items():
            self._extend_addresses(role, count)
        if not is_resumed:
            self._write_meeting()

    @property
    def secret(self) -> str:
        """What the members prove to each other."""
        return self._secret

    def assign(self, role: str, count: int) -> list[AssignedRank]:
        """Which host each member of a role runs on: workers fill slots, others are spread over the hosts."""
        if role not in self._roles:
            raise InputError(f"the gang has no role {role!r}. It has: {', '.join(self._roles)}.")
        hosts = self._hosts or [Host(socket.gethostname(), count)]
        return assign_ranks(hosts, count) if role == WORKER else spread(hosts, count, role=role)

    def addresses(self, role: str) -> list[str]:
        """Where the members of a role other than the workers' listen."""
        return list(self._addresses[role])

    def outlives_workers(self, role: str) -> bool:
        """Whether members of a role run on when the last worker has ended."""
        return self._roles[role].outlives_workers

    def resized(self, role: str, count: int) -> None:
        """A role is going to have `count` members."""
        self._counts[role] = count
        self._write_counts()
        self._extend_addresses(role, count)
        self._write_meeting()

    def start_member(self, assigned: AssignedRank) -> Member:
        """Start the agent of one member, and through it the member."""
        is_here = self._hosts is None or is_this_machine(assigned.host)
        own_agent = [sys.executable, "-I", "-S", agent.__file__]
        command = own_agent if is_here else ssh_command(assigned.host, environ=self._environ)

        def spawn() -> AgentProcess:
            return SpawnedAgent(command, env=self._agent_environment())

        request = self._request(assigned, is_here=is_here)
        warm = self._open_warm(request) if is_here and assigned.role == WORKER else None
        try:
            return AgentMember(assigned, request=request, spawn=spawn, agent=warm)
        except FileNotFoundError as error:
            raise OutsideError(f"{command[0]!r} cannot be started: {error.strerror}. Set TREK_SSH or PATH.") from error

    def _open_warm(self, request: Mapping[str, Any]) -> AgentProcess | None:
        """An agent forked from a warm parent, where that gives the same member as a fresh process would."""
        imports = self._spec.imports
        if (
            self._warm is None
            or self._spec.user is not None
            or why_not_warm(request["argv"], env=request["env"], imports=imports, executable=sys.executable)
        ):
            return None
        return self._warm.open_agent([*imports, request["argv"][2]], env=request["env"])

    def _request(self, assigned: AssignedRank, *, is_here: bool) -> dict[str, Any]:
        role = self._roles[assigned.role]
        return {
            "argv": [os.fspath(part) for part in role.command],
            "env": self._environment(assigned, is_here=is_here),
            "inherit_env": not is_here,
            "cwd": str((self._spec.cwd or Path.cwd()).absolute()),
            "local_rank": assigned.local_rank,
            "local_size": assigned.local_size,
            "num_threads": int(role.cpus) if role.cpus > 1 else None,
            "uses_gpu": assigned.role == WORKER or role.gpus > 0,
            "given": list(self._spec.files),
            "user": self._spec.user and [self._spec.user.uid, self._spec.user.gid, list(self._spec.user.groups)],
            **self._places(assigned, is_here=is_here),
        }

    def _places(self, assigned: AssignedRank, *, is_here: bool) -> dict[str, Any]:
        """Where the member's folder is, and its log and state where there are any."""
        if self._spec.output_dir is not None:
            stem = str(self._spec.output_dir.absolute() / member_stem(assigned.role, assigned.rank))
            Path(f"{stem}.json").unlink(missing_ok=True)  # of a gang that ran here before
            remove_tree(Path(stem))
            return {
                "folder": self._make_folder(Path(stem)),
                "keeps_folder": True,
                "log_path": f"{stem}.log",
                "state_path": f"{stem}.json",
                "state": {"role": assigned.role, "rank": assigned.rank, "host": assigned.host},
            }
        if is_here:
            return {"folder": self._make_folder(None), "keeps_folder": False}
        files = {name: binascii.b2a_base64(data, newline=False).decode() for name, data in self._spec.files.items()}
        return {"folder": None, "keeps_folder": False, "files": files}

    def _make_folder(self, path: Path | None) -> str:
        """A new folder, which is given to its user last: until then, nothing in it can be replaced."""
        folder = Path(tempfile.mkdtemp(prefix="trek-member-")) if path is None else path
        if path is not None:
            path.mkdir(mode=0o700)
        for name, data in self._spec.files.items():
            (folder / name).write_bytes(data)
        if self._spec.user is not None:
            for one in (*folder.iterdir(), folder):
                os.chown(one, self._spec.user.uid, self._spec.user.gid, follow_symlinks=False)
        return str(folder)

    def _agent_environment(self) -> dict[str, str] | None:
        """An agent of another user's member is forked into that member, so it has nothing of this process's."""
        return (
            None
            if self._spec.user is None
            else {name: self._environ[name] for name in _LOADER if name in self._environ}
        )

    def _environment(self, assigned: AssignedRank, *, is_here: bool) -> dict[str, str]:
        around = self._environ if is_here else portable_environment(without_share(self._environ))
        if self._spec.inherits is not None:
            around = {name: value for name, value in around.items() if name in self._spec.inherits}
        unset = {*LAUNCHER_NAMES, *self._spec.unset}
        inherited = {name: value for name, value in around.items() if name not in unset}
        env = {**inherited, "PYTHONUNBUFFERED": "1", **self._visible_gpus(), **self._spec.env}
        env |= {**self._roles[assigned.role].env, **role_environment(assigned, addresses=self._addresses)}
        if assigned.role == WORKER:
            return {**env, **self._world(assigned).environment(), **torchrun_environment(assigned, job=self._job)}
        others = {name: value for name, value in env.items() if name not in WORLD_NAMES}
        return {**others, "TREK_JOB_SECRET": self._secret}

    def _visible_gpus(self) -> dict[str, str]:
        gpus = agent.visible_gpus(dict(self._environ))
        chosen = [gpus[slot] for slot in self._spec.slots if slot < len(gpus)]
        return {"CUDA_VISIBLE_DEVICES": ",".join(chosen)} if gpus and self._spec.slots else {}

    def _world(self, assigned: AssignedRank) -> World:
        return World(
            rank=assigned.rank,
            size=assigned.size,
            local_rank=assigned.local_rank,
            local_size=assigned.local_size,
            master_addr=self._master_addr,
            master_port=self._master_port,
            secret=self._secret,
        )

    def _reachable(self, host: str) -> str:
        """An address of `host` that every member can reach."""
        if not self._elsewhere:
            return "127.0.0.1"
        name = host.rpartition("@")[2]
        return reachable_address(self._elsewhere[0]) if is_loopback(name) else name

    def _extend_addresses(self, role: str, count: int) -> None:
        """Every member of another role than the workers' gets a port of its own; those that have one keep it."""
        if role != WORKER:
            known = self._addresses.setdefault(role, [])
            new = self.assign(role, count)[len(known) :]
            known += [f"{self._reachable(assigned.host)}:{find_free_port()}" for assigned in new]

    def _read_meeting(self) -> None:
        if self._spec.output_dir is None:
            raise InputError("only a gang with an output_dir can be found again.")
        known = read_state(self._spec.output_dir / MEETING, "master_port", "secret", "job", "addresses")
        self._master_port, self._secret, self._job = known["master_port"], known["secret"], known["job"]
        self._addresses = known["addresses"]

    def _write_meeting(self) -> None:
        if self._spec.output_dir is None:
            return
        known = {
            "master_port": self._master_port,
            "secret": self._secret,
            "job": self._job,
            "addresses": self._addresses,
        }
        write_state(self._spec.output_dir / MEETING, known)

    def _write_counts(self) -> None:
        if self._spec.output_dir is None:
            return
        self._spec.output_dir.mkdir(parents=True, exist_ok=True)
        write_state(self._spec.output_dir / MEMBERS, self._counts)
