"""The local engine: gangs as processes on this machine, and over ssh on the machines of a hostfile.

Every member has an agent (`trek.engines.agent`), which is why members die with this process however it dies, why a
member's orphans are found, and why here and elsewhere are one path. The cost is one small process per member.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from trek.engines.agent import visible_gpus
from trek.engines.attached import AttachedMember
from trek.engines.base import Engine, Exit, GangSpec, Handle, OutputLine
from trek.engines.gang import WatchedGang
from trek.engines.local_starter import MEMBERS, LocalStarter
from trek.engines.member import Member
from trek.engines.member_names import check_spec, member_stem
from trek.engines.no_starter import NoStarter
from trek.engines.state_files import read_state
from trek.engines.warm.warm_agent import WarmParents, warm_folder
from trek.errors import InputError

ATTACH_TIMEOUT_S = 2.0
"""How long a gang that was being started when its starter died may take to be complete."""
_ATTACH_POLL_S = 0.02


class LocalEngine(Engine):
    """Processes on this machine, or on the hosts of a hostfile.

    `warm_start` forks workers from a process that has imported torch already, where a spec allows it: see
    `trek.engines.warm`. None: unless TREK_WARM_START is 0.
    """

    name = "local"

    def __init__(self, *, warm_start: bool | None = None) -> None:
        is_wanted = os.environ.get("TREK_WARM_START") != "0" if warm_start is None else warm_start
        self._has_warm_start = is_wanted and sys.platform == "linux"

    def start(
        self,
        spec: GangSpec,
        *,
        on_line: Callable[[OutputLine], None] | None = None,
        on_exit: Callable[[Exit], None] | None = None,
    ) -> WatchedGang:
        """Start the members that `spec` describes and return at once."""
        starter = self._starter(spec)
        members: list[Member] = []
        try:
            for role, one in spec.all_roles().items():
                members += [starter.start_member(assigned) for assigned in starter.assign(role, one.count)]
        except BaseException:
            for member in members:
                member.kill()
                member.close()
            raise
        return WatchedGang(members, starter=starter, handle=self.handle_of(spec), on_line=on_line, on_exit=on_exit)

    def _starter(self, spec: GangSpec, *, is_resumed: bool = False) -> LocalStarter:
        checked = _checked(spec, num_gpus=self.num_gpus())
        warm = WarmParents(warm_folder(os.environ)) if self._has_warm_start else None
        return LocalStarter(checked, environ=dict(os.environ), warm=warm, is_resumed=is_resumed)

    def handle_of(self, spec: GangSpec) -> str | None:
        """The absolute `output_dir`."""
        return None if spec.output_dir is None else str(spec.output_dir.absolute())

    def attach(
        self,
        handle: Handle,
        *,
        spec: GangSpec | None = None,
        on_line: Callable[[OutputLine], None] | None = None,
        on_exit: Callable[[Exit], None] | None = None,
    ) -> WatchedGang:
        """The gang that an earlier process started with the `output_dir` that is its handle, ended members included."""
        paths = _member_files(Path(handle))
        deadline = time.monotonic() + ATTACH_TIMEOUT_S
        while not all(path.exists() for path in paths) and time.monotonic() < deadline:
            time.sleep(_ATTACH_POLL_S)
        members: list[Member] = [AttachedMember(path) for path in paths if path.exists()]
        starter = NoStarter(members) if spec is None else self._starter(spec, is_resumed=True)
        gang = WatchedGang(members, starter=starter, handle=handle, on_line=on_line, on_exit=on_exit)
        if len(members) < len(paths):
            gang.stop(grace_s=0)
            raise InputError(f"only {len(members)} of {len(paths)} members of the gang in {handle!r} were started.")
        return gang

    def slots(self) -> int:
        """GPUs where there are any, else the CPU cores this process may use."""
        return self.num_gpus() or len(os.sched_getaffinity(0))

    def num_gpus(self) -> int:
        """The GPUs this process may use."""
        return len(visible_gpus(dict(os.environ)))


def _member_files(output_dir: Path) -> list[Path]:
    """The files in which the agents of a gang describe its members, whether they have been written yet or not."""
    try:
        counts: dict[str, int] = read_state(output_dir / MEMBERS)
    except FileNotFoundError:
        raise InputError(f"no gang was started with output_dir {str(output_dir)!r}. Start one first.") from None
    return [output_dir / f"{member_stem(role, rank)}.json" for role, count in counts.items() for rank in range(count)]


def _checked(spec: GangSpec, *, num_gpus: int) -> GangSpec:
    check_spec(spec)
    if spec.cwd is not None and not spec.cwd.is_dir() and spec.hostfile is None:
        raise InputError(f"the working directory {str(spec.cwd)!r} does not exist. Create it, or name another.")
    wanted = sum(role.gpus * role.count for role in spec.all_roles().values())
    if wanted > num_gpus and spec.hostfile is None:
        raise InputError(
            f"{spec.num_workers} workers with {spec.gpus_per_worker:g} GPUs each need {wanted:g}, "
            f"and this machine has {num_gpus}. Ask for fewer workers or fewer GPUs."
        )
    return replace(spec, command=[os.fspath(part) for part in spec.command])
