"""Engine and Gang: start processes together, watch them, resize them, stop them.

Knows nothing of training: a gang runs a command line in every member, with a World in its environment.
Contracts, for every Engine:

- Threads: a Gang may be used from several threads. Callbacks run on the gang's own threads, one at a time per gang.
- Order: lines of one member arrive in the order it wrote them; its Exit comes after its last line.
- Promptness: a death is reported within 100 ms.
- Ownership: the Engine owns the processes and whatever they start; `stop` leaves none of them behind.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from trek.errors import InputError


@dataclass(frozen=True)
class GangSpec:
    """What to run, how often, and with what."""

    command: Sequence[str]
    num_workers: int
    env: Mapping[str, str] = field(default_factory=dict)
    """Added to the environment of the starting process; the World's variables come on top."""
    cwd: Path | None = None
    cpus_per_worker: float = 1
    gpus_per_worker: float = 0
    hostfile: Path | None = None
    """Open MPI style `host slots=n` lines; None = this machine only."""
    output_dir: Path | None = None
    """When set, members write to `rank_<n>.log` there and outlive the starting process; otherwise they die with it."""


@dataclass(frozen=True)
class OutputLine:
    """One line that one member wrote."""

    rank: int
    stream: Literal["stdout", "stderr"]
    text: str


@dataclass(frozen=True)
class Exit:
    """How one member ended. `code` is negative for a signal; `last_lines` are the last it wrote to stderr."""

    rank: int
    host: str
    pid: int
    code: int
    last_lines: tuple[str, ...] = ()


class Gang(ABC):
    """Processes that one job runs together."""

    @property
    @abstractmethod
    def num_workers(self) -> int:
        """How many members the gang has now."""

    @property
    @abstractmethod
    def pids(self) -> dict[int, int]:
        """Process id by rank, of the members that are alive."""

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
    def resize(self, num_workers: int) -> None:
        """Start members with the next free ranks, or stop those with the highest ranks."""


class Engine(ABC):
    """A place where gangs run."""

    name: str

    @abstractmethod
    def start(
        self,
        spec: GangSpec,
        *,
        on_line: Callable[[OutputLine], None] | None = None,
        on_exit: Callable[[Exit], None] | None = None,
    ) -> Gang:
        """Start `spec.num_workers` members and return at once."""

    @abstractmethod
    def slots(self) -> int:
        """How many workers this engine can run side by side: GPUs where there are any, else CPU cores."""


_ENGINES = {"local": "trek.engines.local:LocalEngine"}


def open_engine(name: str = "local") -> Engine:
    """The Engine called `name`."""
    if name not in _ENGINES:
        raise InputError(f"engine {name!r} does not exist. Use one of: {', '.join(sorted(_ENGINES))}.")
    module, _, attribute = _ENGINES[name].partition(":")
    engine: Engine = getattr(importlib.import_module(module), attribute)()
    return engine
