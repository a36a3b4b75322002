"""RayStarter: places the members of one gang on a cluster and starts them there; holds what they share."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from trek._version import __version__
from trek.distribution import install_command
from trek.engines.base import WORKER, GangSpec
from trek.engines.hosts import AssignedRank
from trek.engines.member import Member
from trek.engines.member_folder import ADDRESSES
from trek.engines.member_names import member_stem
from trek.engines.pending_starts import PendingStart
from trek.engines.ray.connection import NAMESPACE, living_nodes
from trek.engines.ray.gang_record import ActorRecord, GangRecord
from trek.engines.ray.member_actor import MemberActor
from trek.engines.ray.options import DEFAULT_WAIT_S, RayOptions, demands_of, describe, find_missing, sum_of
from trek.engines.ray.ray_member import RayMember, version_problem
from trek.engines.roles import WORLD_NAMES, role_environment, torchrun_environment
from trek.engines.ssh import portable_environment, without_share
from trek.errors import InputError, NoRoom, OutsideError
from trek.world.environments import LAUNCHER_NAMES
from trek.world.world import World

_LOG = logging.getLogger(__name__)
_CONCURRENT_CALLS = 8
_NODES_OWN = ("CUDA_VISIBLE_DEVICES", "VIRTUAL_ENV")
_TELL_S = 3.0
_CHECK_S = 1.0
"""How often a start that waits looks whether it was cancelled, and says what it waits for."""
_PLACED_S = 60.0
"""How long actors may take to answer on nodes that have room for them: Ray starts a process for each."""
_MAX_LOST_STARTS = 5
"""How often a start is repeated when nodes die during it."""


class _NodeLost(OutsideError):
    """A node was lost before the members on it had started."""


class RayStarter:
    """See the module."""

    def __init__(
        self,
        spec: GangSpec,
        options: RayOptions,
        *,
        environ: Mapping[str, str],
        record: GangRecord | None = None,
        is_warm: bool,
    ) -> None:
        """`record`: of a gang that runs already, started with this spec by another process."""
        self._spec = spec
        self._options = options
        self._environ = environ
        self._is_warm = is_warm
        self._roles = spec.all_roles()
        self.record = record or GangRecord(secret=spec.secret or secrets.token_hex(32))
        self._has_gpus = any(node["Resources"].get("GPU") for node in living_nodes())
        self._group: PlacementGroup | None = self._find_group() if record is not None else None
        self._files: Any = None
        self._open: dict[tuple[str, int], RayMember] = {}

    # -- the whole gang

    def start_all(self, pending: PendingStart) -> list[RayMember]:
        """Start every member; those of an elastic gang that find no room yet follow when there is some.

        A node that dies meanwhile is no failure of the gang: no member runs yet, so all of it is done again elsewhere.
        """
        for left in reversed(range(_MAX_LOST_STARTS + 1)):
            try:
                return self._try_to_start(pending, is_again=left < _MAX_LOST_STARTS)
            except _NodeLost as lost:
                if not left:
                    raise
                _LOG.warning("%s The gang is started again elsewhere.", str(lost))  # not what its traceback holds
        raise AssertionError("the last round returns or raises")

    def _try_to_start(self, pending: PendingStart, *, is_again: bool) -> list[RayMember]:
        self.record.write(self._folder)
        actors: list[tuple[str, Any]] = []
        try:
            self._reserve(pending, is_again=is_again)
            for role, one in self._roles.items():
                actors += [(role, self._make_actor(role, index)) for index in range(one.count)]
            self._meet([(role, *named) for role, named in actors], pending)
        except BaseException:
            for _, (_, actor) in actors:
                with contextlib.suppress(RayError):
                    ray.kill(actor)
            self._remove_group()
            raise
        handles = {name: actor for _, (name, actor) in actors}
        return [self.open_member(one, handles[one.actor], is_placed=bool(one.node)) for one in self.record.members]

    def _reserve(self, pending: PendingStart, *, is_again: bool) -> None:
        """Reserve room for all workers at once; those of an elastic gang come and go, and are placed one by one.

        `is_again`: there was room until a node was lost, so that what is missing now may come back.
        """
        demands = demands_of(self._spec, self._options, has_gpus=self._has_gpus)
        needed = demands[WORKER][: self._spec.min_workers]
        missing = find_missing(
            needed, [node["Resources"] for node in living_nodes()], placement=self._options.placement
        )
        may_wait = self._options.wait_s is None and (is_again or self._spec.waits_for_machines)
        if missing and not self._options.wait_s and not may_wait:
            raise InputError(
                f"{len(needed)} workers with {describe(needed[0])} each do not fit on the Ray cluster: {missing}. Ask "
                "for fewer workers, CPUs or GPUs, add nodes, or set the engine's option wait_s to wait for them."
            )
        if self._spec.min_workers is not None:
            if self._options.is_strict:
                raise InputError(
                    f"placement {self._options.placement!r} is for a fixed number of workers. Use PACK or SPREAD."
                )
            return
        is_kept = self._folder is not None
        self._group = placement_group(
            demands[WORKER],
            strategy=self._options.placement,
            name=self.record.gang,
            lifetime="detached" if is_kept else None,
        )
        group = self._group
        self._wait_for_room(lambda: bool(group.wait(_CHECK_S)), pending, demands=needed, missing=missing)

    def _wait_for_room(
        self,
        is_there: Callable[[], bool],
        pending: PendingStart,
        *,
        demands: Sequence[Mapping[str, float]],
        missing: str = "",
        least_s: float = 0.0,
    ) -> None:
        """Wait until there is room for `demands`, and `least_s` in any case. `is_there` takes a moment to answer no."""
        own_s, began, is_told = self._options.wait_s, time.monotonic(), False
        wait_s = max(DEFAULT_WAIT_S if own_s is None else own_s, least_s)
        while not is_there():
            pending.check()
            waited_s = time.monotonic() - began
            what = missing or _lack(demands)
            if waited_s >= wait_s:
                raise NoRoom(
                    f"the Ray cluster had no room for {len(demands)} workers for {wait_s:g} s: {what}. Wait for other "
                    "jobs, ask for less, or raise the engine's option wait_s.",
                    is_own_limit=own_s is not None,
                )
            if waited_s >= _TELL_S and not is_told:
                _LOG.warning("waiting for room on the Ray cluster: %s", what)
                is_told = True
            pending.waits_for = f"waits for room on the Ray cluster: {what}"

    def _meet(self, actors: list[tuple[str, str, Any]], pending: PendingStart) -> None:
        """Find out where the actors are, and give them ranks and addresses accordingly."""
        needed = [one for one in actors if self._is_needed(one, actors)]
        if self._group is None:  # otherwise the room is theirs already
            self._wait_for_actors(needed, pending)
        places = self._places(needed)
        for place in places.values():
            if place["version"] != __version__:
                raise InputError(version_problem(place))
        nodes = list(dict.fromkeys(place["node"] for place in places.values()))
        counts: dict[str, int] = dict.fromkeys(self._roles, 0)
        order = {name: nodes.index(place["node"]) for name, place in places.items()}
        ordered = sorted(actors, key=lambda one: order.get(one[1], len(nodes)))
        for role, name, _ in ordered:
            place = places.get(name, {"host": "", "address": "", "node": ""})
            where = {key: place[key] for key in ("host", "address", "node")}
            self.record.members.append(ActorRecord(name, role, counts[role], **where, bundle=_index_of(name)))
            counts[role] += 1
            if role != WORKER:
                self.record.addresses.setdefault(role, []).append(f"{place['address']}:{place['port']}")
        first = self.record.find(WORKER, 0)
        assert first is not None
        self.record.master = (first.address, places[first.actor]["port"])
        for one in self.record.members:
            _clear(self._home(one.role, one.rank))
        self.record.write(self._folder)

    def _is_needed(self, one: tuple[str, str, Any], actors: Sequence[tuple[str, str, Any]]) -> bool:
        """Whether the gang cannot start without it."""
        workers = [name for role, name, _ in actors if role == WORKER]
        return one[0] != WORKER or one[1] in workers[: self._spec.min_workers]

    def _wait_for_actors(self, actors: Sequence[tuple[str, str, Any]], pending: PendingStart) -> None:
        """Wait until Ray has placed all of them; an error of one is told when it is asked where it is."""
        calls = [actor.describe.remote() for _, _, actor in actors]
        demands = demands_of(self._spec, self._options, has_gpus=self._has_gpus)[WORKER][: self._spec.min_workers]
        self._wait_for_room(
            lambda: len(ray.wait(calls, num_returns=len(calls), timeout=_CHECK_S)[0]) == len(calls),
            pending,
            demands=demands,
            least_s=_PLACED_S,
        )

    def _places(self, actors: Sequence[tuple[str, str, Any]]) -> dict[str, Mapping[str, Any]]:
        try:
            calls = [actor.describe.remote() for _, _, actor in actors]
            found = ray.get(calls, timeout=_PLACED_S)
        except GetTimeoutError:
            raise OutsideError(
                f"the Ray cluster started fewer than {len(actors)} members in {_PLACED_S:g} s. Look at `ray status`."
            ) from None
        except RayError as error:
            said = next((line.strip() for line in reversed(str(error).splitlines()) if line.strip()), "")
            if isinstance(error, RayActorError) and not error.actor_init_failed:
                raise _NodeLost(f"the Ray cluster lost a member before it was started: {said}") from error
            raise OutsideError(
                f"a member could not be started on the Ray cluster: {said} Every node needs Trek {__version__}: run "
                f"`{install_command('ray', pinned=True)}` there, or set the engine's option send_trek."
            ) from error
        return {name: place for (_, name, _), place in zip(actors, found, strict=True)}

    # -- one member

    def _make_actor(self, role: str, index: int) -> tuple[str, Any]:
        """Ask Ray for the actor of a member, and return without waiting for it."""
        name = f"{self.record.gang}/{role}/{index}/{secrets.token_hex(4)}"
        demand = dict(self._options.demand(role, self._roles[role], has_gpus=self._has_gpus))
        kept = {"lifetime": "detached", "name": name, "namespace": NAMESPACE} if self._folder is not None else {}
        made = ray.remote(MemberActor).options(
            num_cpus=demand.pop("CPU", 0.0),
            num_gpus=demand.pop("GPU", 0.0),
            memory=demand.pop("memory", None),
            resources=demand,
            max_concurrency=_CONCURRENT_CALLS,
            max_restarts=0,
            scheduling_strategy=self._strategy(role, index),
            **kept,
        )
        return name, made.remote()

    def _strategy(self, role: str, index: int) -> Any:
        if self._roles[role].is_beside_starter:
            return NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        if role == WORKER and self._group is not None and index < self._group.bundle_count:
            return PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=index)
        return "DEFAULT" if role == WORKER and self._options.placement == "PACK" else "SPREAD"

    def open_member(
        self, record: ActorRecord, actor: Any, *, is_started: bool = False, is_placed: bool = True
    ) -> RayMember:
        """The member of an actor. `is_started`: by another process, before. `is_placed`: it has answered."""
        count = len([one for one in self.record.members if one.role == record.role])
        assigned = AssignedRank(record.rank, record.host, 0, 1, count, record.role)
        member = RayMember(
            assigned,
            actor=actor,
            prepare=None if is_started else self._prepare,
            release=self._release,
            home=self._home(record.role, record.rank),
            log_start=record.log_start,
            is_placed=is_placed,
        )
        member.node = record.node
        self._open[record.role, record.rank] = member
        return member

    def _prepare(self, member: RayMember, place: Mapping[str, Any]) -> tuple[Mapping[str, Any], Any]:
        """The request that starts a member which has a place now."""
        record = self.record.find(member.role, member.rank)
        assert record is not None
        member.host = record.host = place["host"]
        is_moved = bool(record.node) and record.node != place["node"] and member.role != WORKER
        record.address, record.node = place["address"], place["node"]
        member.node = record.node
        if is_moved:
            self.record.addresses[member.role][member.rank] = f"{place['address']}:{place['port']}"
            self._tell_addresses()
        self.record.write(self._folder)
        if self._files is None:
            self._files = ray.put(dict(self._spec.files))
        return self._request(self._assigned(record)), self._files

    def _tell_addresses(self) -> None:
        """A member that has moved listens elsewhere; the others look it up in their folders when they lose it."""
        told = "\n".join(f"{role}={','.join(known)}" for role, known in self.record.addresses.items())
        for member in self._open.values():
            member.write_file(ADDRESSES, told.encode())

    def _assigned(self, record: ActorRecord) -> AssignedRank:
        same = [one for one in self.record.members if one.role == record.role]
        here = [one.rank for one in same if one.node == record.node]
        nodes = list(dict.fromkeys(one.node for one in same if one.node))
        return AssignedRank(
            record.rank, record.host, here.index(record.rank), len(here), len(same), record.role,
            node=nodes.index(record.node), num_nodes=len(nodes),
        )  # fmt: skip

    def _request(self, assigned: AssignedRank) -> dict[str, Any]:
        role = self._roles[assigned.role]
        cpus = self._options.demand(assigned.role, role, has_gpus=self._has_gpus).get("CPU", 1.0)
        return {
            "argv": [os.fspath(part) for part in role.command],
            "python": sys.executable,
            "env": self._environment(assigned),
            "cwd": str((self._spec.cwd or Path.cwd()).absolute()),
            "archive": self._spec.workspace,
            "local_rank": assigned.local_rank,
            "local_size": assigned.local_size,
            # Ray counts CPUs, so a member gets as many threads as it has taken.
            "num_threads": max(int(cpus), 1),
            "uses_gpu": assigned.role == WORKER or role.gpus > 0,
            "given": list(self._spec.files),
            "has_log": self._folder is not None,
            "imports": list(self._spec.imports) if self._is_warm and assigned.role == WORKER else [],
            "assigned": asdict(assigned),
        }

    def _environment(self, assigned: AssignedRank) -> dict[str, str]:
        unset = {*LAUNCHER_NAMES, *self._spec.unset, *_NODES_OWN}
        around = portable_environment(without_share(self._environ))
        inherited = {name: value for name, value in around.items() if name not in unset and not name.startswith("RAY_")}
        env = {**inherited, "PYTHONUNBUFFERED": "1", **self._spec.env, **self._roles[assigned.role].env}
        env |= role_environment(assigned, addresses=self.record.addresses)
        if assigned.role == WORKER:
            world = self._world(assigned).environment()
            return {**env, **world, **torchrun_environment(assigned, job=self.record.job)}
        others = {name: value for name, value in env.items() if name not in WORLD_NAMES}
        return {**others, "TREK_JOB_SECRET": self.secret}

    def _world(self, assigned: AssignedRank) -> World:
        return World(
            rank=assigned.rank,
            size=assigned.size,
            local_rank=assigned.local_rank,
            local_size=assigned.local_size,
            master_addr=self.record.master[0],
            master_port=self.record.master[1],
            secret=self.secret,
        )

    # -- what the gang asks for (`trek.engines.gang.Starter`)

    @property
    def secret(self) -> str:
        """What the members prove to each other."""
        return self.record.secret

    def assign(self, role: str, count: int) -> list[AssignedRank]:
        """The members of a role, were there `count`; Ray decides where a new one runs."""
        if role not in self._roles:
            raise InputError(f"the gang has no role {role!r}. It has: {', '.join(self._roles)}.")
        return [AssignedRank(rank, "", 0, 1, count, role) for rank in range(count)]

    def start_member(self, assigned: AssignedRank) -> Member:
        """Start one member, in the place of an earlier one or as a further one."""
        record = self.record.find(assigned.role, assigned.rank)
        bundle = assigned.rank if record is None else record.bundle
        name, actor = self._make_actor(assigned.role, bundle)
        home = self._home(assigned.role, assigned.rank)
        if record is None:
            record = ActorRecord(name, assigned.role, assigned.rank, bundle=bundle)
            self.record.members.append(record)
            self._add_address(record, actor)
        record.actor, record.log_start = name, _log_size(home)
        _clear(home)
        self.record.write(self._folder)
        return self.open_member(record, actor, is_placed=False)

    def _add_address(self, record: ActorRecord, actor: Any) -> None:
        """Every member of another role than the workers' listens; where, its node says."""
        if record.role != WORKER:
            place = self._places([(record.role, record.actor, actor)])[record.actor]
            record.host, record.address, record.node = place["host"], place["address"], place["node"]
            self.record.addresses.setdefault(record.role, []).append(f"{place['address']}:{place['port']}")

    def addresses(self, role: str) -> list[str]:
        """Where the members of a role other than the workers' listen."""
        return list(self.record.addresses[role])

    def outlives_workers(self, role: str) -> bool:
        """Whether members of a role run on when the last worker has ended."""
        return self._roles[role].outlives_workers

    def resized(self, role: str, count: int) -> None:
        """A role is going to have `count` members."""
        self.record.members = [one for one in self.record.members if one.role != role or one.rank < count]
        if role in self.record.addresses:
            del self.record.addresses[role][count:]
        self.record.write(self._folder)

    # -- internals

    @property
    def _folder(self) -> Path | None:
        return self._spec.output_dir

    def _home(self, role: str, rank: int) -> Path | None:
        return None if self._folder is None else self._folder.absolute() / member_stem(role, rank)

    def _release(self, member: RayMember) -> None:
        """A member has ended for good; with the last one, the room that was reserved is given back."""
        if self._open.get((member.role, member.rank)) is member:
            del self._open[member.role, member.rank]
        if not self._open:
            self._remove_group()

    def _find_group(self) -> PlacementGroup | None:
        try:
            found: PlacementGroup = ray.util.get_placement_group(self.record.gang)
        except ValueError:  # an elastic gang has none
            return None
        return found

    def _remove_group(self) -> None:
        if self._group is not None and ray.is_initialized():
            with contextlib.suppress(RayError):
                remove_placement_group(self._group)


def _index_of(name: str) -> int:
    return int(name.split("/")[2])


def _clear(home: Path | None) -> None:
    """Remove what an earlier member in this place left; its log goes on."""
    if home is not None:
        home.with_suffix(".json").unlink(missing_ok=True)
        shutil.rmtree(home, ignore_errors=True)


def _log_size(home: Path | None) -> int:
    log = None if home is None else home.with_suffix(".log")
    return log.stat().st_size if log is not None and log.exists() else 0


def _lack(demands: Sequence[Mapping[str, float]]) -> str:
    """What is needed, and what of it is free."""
    needed, total = sum_of(demands), sum_of([node["Resources"] for node in living_nodes()])
    available = ray.available_resources()  # type: ignore[no-untyped-call]
    shown = [name for name in dict.fromkeys(("CPU", "GPU", *needed)) if total.get(name)]
    return f"{describe(needed)} needed, and {describe({name: available.get(name, 0.0) for name in shown})} are free"
