"""Engine and Gang: start processes together, watch them, resize them, stop them, find them again.

Knows nothing of training: a gang runs a command line in every member, with a World in its environment.
Contracts, for every Engine:

- Threads: a Gang may be used from several threads. Callbacks run on the gang's own threads, one at a time per gang.
- Order: lines of one member arrive in the order it wrote them; its Exit comes after its last line.
- Promptness: a death is reported within 100 ms; that of a machine, or of what runs members there for the Engine, as
  soon as the Engine learns of it (`ray`: within some seconds). Such a member may still be at work for a moment, so
  members that form groups count generations and refuse those of an earlier one.
- Ownership: the Engine owns the processes and whatever they start; `stop` leaves none of them behind.
- Roles: members are named by role and rank. `worker` is the role that a World counts: its members get RANK and
  WORLD_SIZE, and the gang ends with them. A member of another role gets TREK_ROLE_RANK and TREK_ROLE_SIZE instead, and
  is stopped when the last worker has ended, unless its role says otherwise. Every member gets TREK_ROLE and
  TREK_JOB_SECRET, and for every other role its members' addresses as `host:port,…` in TREK_<ROLE>_ADDRESSES; each of
  them listens at its own one.
- Places: members may run on other machines, so a starter never reads their files. A member finds what it was given
  (`GangSpec.files`, and later `write_file`) in the folder named by TREK_MEMBER_DIR, and writes its results there:
  `read_file` returns them once the member has ended. A member's outcome is the JSON object in `outcome.json` there; the
  Engine does not look into it.
- Questions: `ask` puts a file `asked` into the folder of every living member; a member that listens writes a JSON
  object to `answer.json` and removes `asked`. See `trek.engines.member_folder`.
- Waiting: where machines are shared, `start` may wait for room. Others may then ask what it waits for, or cancel it, by
  the handle that the gang is going to have; both may be called from any thread.
- Return: a gang whose spec has an `output_dir` outlives its starter, and `attach` finds it again by its handle, which
  is JSON and known before the gang is started (`Engine.handle_of`), so that it can be stored first.
"""

from __future__ import annotations

import json
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from trek.engines.member_folder import OUTCOME
from trek.registry import Registry

WORKER = "worker"
"""The role whose members make up the World."""

Handle: TypeAlias = Any
"""Identifies a gang for `attach`: JSON, meaningful only to its Engine."""


@dataclass(frozen=True)
class Role:
    """Members of one kind: what they run, how many, and with what."""

    command: Sequence[str]
    count: int
    env: Mapping[str, str] = field(default_factory=dict)
    cpus: float = 1
    gpus: float = 0
    is_beside_starter: bool = False
    """Whether it runs on the machine of the starter if the Engine can choose, so that it is not lost with another."""
    outlives_workers: bool = False
    """Whether it runs on when the last worker has ended, until the gang is stopped: workers may be restarted."""


@dataclass(frozen=True)
class OsUser:
    """A user of the operating system, whom members may run as if this process is root's."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]


@dataclass(frozen=True)
class GangSpec:
    """What to run, how often, and with what. `command` and `num_workers` describe the workers."""

    command: Sequence[str]
    num_workers: int
    env: Mapping[str, str] = field(default_factory=dict)
    """Added to the environment of the starting process; variables of the role and the World come on top."""
    secret: str = field(default="", repr=False)
    """What members prove to each other that they belong together; made up if empty. All have it in TREK_JOB_SECRET."""
    unset: Collection[str] = ()
    """Variables of the starting process that members do not inherit."""
    inherits: Collection[str] | None = None
    """The only variables of the starting process that members inherit; None: all but `unset`."""
    user: OsUser | None = None
    """Whom members run as; None for the user of this process. Only for members on this machine."""
    cwd: Path | None = None
    workspace: bytes = field(default=b"", repr=False)
    """A tar of the folder to run in, for members on machines that do not have `cwd`."""
    waits_for_machines: bool = False
    """Whether a start waits for machines that are not there, as it does for those that are busy, unless told not to."""
    min_workers: int | None = None
    """How many workers there must be room for at the start; the others follow as room is found. None: all of them."""
    cpus_per_worker: float = 1
    gpus_per_worker: float = 0
    hostfile: Path | None = None
    """Open MPI style `host slots=n` lines; None = this machine only."""
    output_dir: Path | None = None
    """When set, members write to log files and outlive the starting process; otherwise they die with it."""
    roles: Mapping[str, Role] = field(default_factory=dict)
    """Members beside the workers, such as parameter servers."""
    slots: Sequence[int] = ()
    """Which of the engine's slots to use, where its slots are GPUs; empty leaves the choice to the engine."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Put into the folder of every member before it starts."""
    imports: Sequence[str] = ()
    """Modules of Trek and torch that every worker is going to import. An engine may start workers from a process that
    has imported them already, if the command is `python -m trek.<module>`. Empty: every member is a fresh process."""

    def all_roles(self) -> dict[str, Role]:
        """Every role by its name, the workers first."""
        workers = Role(self.command, self.num_workers, cpus=self.cpus_per_worker, gpus=self.gpus_per_worker)
        return {WORKER: workers, **self.roles}


@dataclass(frozen=True)
class OutputLine:
    """One line that one member wrote."""

    rank: int
    stream: Literal["stdout", "stderr"]
    text: str
    role: str = WORKER


@dataclass(frozen=True)
class LogLine:
    """One line of a member's log; `end` is the position after it, where reading continues."""

    text: str
    end: int


@dataclass(frozen=True)
class Exit:
    """How one member ended. `code` is negative for a signal; `last_lines` are the last it wrote to stderr."""

    rank: int
    host: str
    pid: int
    code: int
    last_lines: tuple[str, ...] = ()
    role: str = WORKER
    is_unreached: bool = False
    """How it ended is not known, since its host could not be reached, or not any more."""
    hint: str = ""
    """What to do about a host that cannot be reached."""


@dataclass(frozen=True)
class Placement:
    """Where one living member runs. `devices` are named as on its machine: `cuda:3`, or `cpu`."""

    role: str
    rank: int
    host: str
    pid: int
    devices: tuple[str, ...]
    node: str = ""
    """The `id` of the Node; several may have one host name."""


@dataclass(frozen=True)
class Node:
    """A machine of an Engine, and how many workers it can run side by side."""

    name: str
    address: str
    slots: int
    num_gpus: int = 0
    id: str = ""


class Gang(ABC):
    """Processes that one job runs together."""

    @property
    @abstractmethod
    def handle(self) -> Handle | None:
        """What `Engine.attach` finds this gang by; None for a gang that dies with its starter."""

    @property
    @abstractmethod
    def secret(self) -> str:
        """What its members prove to each other; InputError if it was attached to without its spec."""

    @property
    @abstractmethod
    def num_workers(self) -> int:
        """How many workers the gang has now."""

    @abstractmethod
    def addresses(self, role: str) -> list[str]:
        """Where the members of a role other than the workers' listen, as `host:port`, by rank."""

    @property
    @abstractmethod
    def placements(self) -> list[Placement]:
        """Where the living members run, workers first; waits the moment that members take to start."""

    @property
    def used_nodes(self) -> set[str]:
        """The `id` of every Node on which a living member runs or is being started. An Engine that can, never waits."""
        return {place.node for place in self.placements}

    @property
    def pids(self) -> dict[int, int]:
        """Process id by rank, of the workers that are alive."""
        return {place.rank: place.pid for place in self.placements if place.role == WORKER}

    @abstractmethod
    def wait(self, timeout_s: float | None = None) -> list[Exit] | None:
        """Exits in the order they happened, once every member has ended; None when the time ran out first."""

    @abstractmethod
    def wait_first_failure(self, timeout_s: float | None = None) -> Exit | None:
        """The first non-zero Exit, as soon as it happens; None when all ended well or the time ran out."""

    @abstractmethod
    def stop(self, *, grace_s: float = 5.0) -> None:
        """SIGTERM, then after `grace_s` SIGKILL, to every member and what it started. Safe to call twice."""

    @abstractmethod
    def detach(self) -> None:
        """Stop watching, without stopping any member. Only for a gang that has a handle."""

    @abstractmethod
    def resize(self, count: int, *, role: str = WORKER) -> None:
        """Start members with the next free ranks, or stop those with the highest ranks.

        Members that run already do not learn of it: their environment stays as it was.
        """

    @abstractmethod
    def kill(self, rank: int, *, role: str = WORKER) -> None:
        """SIGKILL to one member and what it started, if it is alive; returns when it has ended.

        This is not a failure of the gang. The member can be restarted.
        """

    @abstractmethod
    def restart(self, rank: int, *, role: str = WORKER) -> None:
        """Start a member anew in the place of one that has ended; one that is still alive is killed first.

        The Exit of the one before stays among those that happened, and is not a failure of the gang.
        """

    @abstractmethod
    def read_log(self, rank: int, position: int = 0, *, role: str = WORKER) -> list[LogLine]:
        """The next whole lines of a member's log from `position` on; none when there are none yet.

        One call reads a bounded part. A negative position counts from the end of the log. An unfinished last line is
        given once the member has ended.
        """

    @abstractmethod
    def read_file(
        self, name: str, *, rank: int, role: str = WORKER, start: int = 0, size: int | None = None
    ) -> bytes | None:
        """A file that a member left in its folder, once it has ended; None if there is none.

        With `start` or `size`, a part of it. A file that is too large is only given in parts.
        """

    @abstractmethod
    def write_file(self, name: str, data: bytes) -> None:
        """Put a file into the folder of every living member, whole or not at all; an earlier one is replaced.

        May return before the file is there. Members that are started later get the files of the spec.
        """

    @abstractmethod
    def ask(self, *, timeout_s: float) -> dict[int, dict[str, Any]]:
        """The answers of the living workers to `asked`, by rank; members that did not answer in time are left out."""

    def outcomes(self) -> dict[int, dict[str, Any]]:
        """The outcomes that ended workers wrote, by rank."""
        found = {rank: self.read_file(OUTCOME, rank=rank) for rank in range(self.num_workers)}
        read = {rank: _json_object(document) for rank, document in found.items() if document}
        return {rank: document for rank, document in read.items() if document is not None}


def _json_object(document: bytes) -> dict[str, Any] | None:
    """What a member wrote; None where it is not what it should be, as after a crash."""
    try:
        found = json.loads(document)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


class Engine(ABC):
    """A place where gangs run."""

    name: str
    shares_disk: bool = True
    """Whether members see the files of the starting process under the same paths."""
    can_grow: bool = False
    """Whether machines may be added while it runs: what does not fit now may fit later, and waits."""

    @abstractmethod
    def start(
        self,
        spec: GangSpec,
        *,
        on_line: Callable[[OutputLine], None] | None = None,
        on_exit: Callable[[Exit], None] | None = None,
    ) -> Gang:
        """Start the members that `spec` describes; return when there is room for those that must be there.

        NoRoom if there was none in time, StartCancelled if it was cancelled; nothing is left running then.
        """

    def start_waits_for(self, handle: Handle) -> str:
        """What the start of the gang with this handle waits for, in words; empty if it does not wait."""
        return ""

    def cancel_start(self, handle: Handle) -> None:  # noqa: B027 - most engines start at once
        """Have the start of the gang with this handle give up, if it waits."""

    @abstractmethod
    def handle_of(self, spec: GangSpec) -> Handle | None:
        """The handle that a gang of `spec` will have; None if it will die with its starter."""

    @abstractmethod
    def attach(
        self,
        handle: Handle,
        *,
        spec: GangSpec | None = None,
        on_line: Callable[[OutputLine], None] | None = None,
        on_exit: Callable[[Exit], None] | None = None,
    ) -> Gang:
        """The gang with this handle, ended members included; waits for members that were just being started.

        Its output is read from the beginning. It can be waited for and stopped; with the `spec` it was started with, it
        can also grow, and members can be restarted. Raises InputError if there is no such gang; one that was never
        started completely is stopped first.
        """

    @abstractmethod
    def slots(self) -> int:
        """How many workers this engine can run side by side: one on each GPU where there are any, else on each core."""

    @abstractmethod
    def num_gpus(self) -> int:
        """How many GPUs this engine has; where there are any, they are its slots."""

    def request_room(self, num_workers: int) -> None:  # noqa: B027 - most engines have the machines that they have
        """Ask for machines on which `num_workers` can run side by side, where machines can be added; 0 withdraws it."""

    def own_address(self) -> str:
        """Where members reach this machine."""
        return "127.0.0.1"

    def nodes(self) -> list[Node]:
        """The machines that members run on now."""
        name = socket.gethostname()
        return [Node(name, "127.0.0.1", self.slots(), self.num_gpus())]


ENGINES: Registry[Callable[..., Engine]] = Registry(
    "engines",
    {"local": "trek.engines.local:LocalEngine", "ray": "trek.engines.ray.ray_engine:RayEngine"},
    word="engine",
    extras={"ray": "ray"},
    base="trek.engines.base:Engine",
)


def open_engine(name: str = "local", options: Mapping[str, Any] | None = None) -> Engine:
    """The Engine called `name`, with `options` of its own."""
    kind = ENGINES.load(name)
    ENGINES.check_settings(name, options or {}, taken_by=kind)
    return kind(**(options or {}))
