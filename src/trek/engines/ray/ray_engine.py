"""RayEngine: gangs on the machines of a Ray cluster."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError

from trek.engines.attached import AttachedMember
from trek.engines.base import WORKER, Engine, Exit, GangSpec, Handle, Node, OutputLine, Role
from trek.engines.gang import WatchedGang
from trek.engines.member import Member
from trek.engines.member_names import check_spec, member_stem
from trek.engines.no_starter import NoStarter
from trek.engines.pending_starts import PendingStarts
from trek.engines.ray.autoscaler import Autoscaler
from trek.engines.ray.connection import NAMESPACE, connect, living_nodes
from trek.engines.ray.gang_record import ActorRecord, GangRecord
from trek.engines.ray.options import RayOptions, num_fitting
from trek.engines.ray.ray_member import write_end
from trek.engines.ray.ray_starter import RayStarter
from trek.errors import InputError
from trek.registry import takes_fields_of

ATTACH_TIMEOUT_S = 10.0


class RayEngine(Engine):
    """See the package."""

    name = "ray"
    shares_disk = False
    can_grow = True

    @takes_fields_of(RayOptions)
    def __init__(self, *, warm_start: bool | None = None, **options: Any) -> None:
        self._options = RayOptions(**{**options, "resources": options.get("resources") or {}})
        self._autoscaler = Autoscaler()
        self._is_warm = os.environ.get("TREK_WARM_START") != "0" if warm_start is None else warm_start
        self._pending = PendingStarts()

    def start(
        self,
        spec: GangSpec,
        *,
        on_line: Callable[[OutputLine], None] | None = None,
        on_exit: Callable[[Exit], None] | None = None,
    ) -> WatchedGang:
        """Start the members that `spec` describes; returns when the cluster has room for those that must be there."""
        self._check(spec)
        self._connect()
        starter, handle = self._starter(spec), self.handle_of(spec)
        with self._pending.begin(handle) as pending:
            members = starter.start_all(pending)
        return WatchedGang(members, starter=starter, handle=handle, on_line=on_line, on_exit=on_exit)

    def start_waits_for(self, handle: Handle) -> str:
        """What the cluster lacks."""
        return self._pending.waits_for(handle)

    def cancel_start(self, handle: Handle) -> None:
        """Noticed within a second."""
        self._pending.cancel(handle)

    def _connect(self) -> None:
        connect(self._options.address, sends_trek=self._options.send_trek)

    def _check(self, spec: GangSpec) -> None:
        for name in ("user", "inherits", "hostfile"):
            if getattr(spec, name) is not None:
                raise InputError(f"the engine 'ray' runs members where and as whom Ray does. Leave {name} out.")
        check_spec(spec)

    def _starter(self, spec: GangSpec, *, record: GangRecord | None = None) -> RayStarter:
        return RayStarter(spec, self._options, environ=dict(os.environ), record=record, is_warm=self._is_warm)

    def handle_of(self, spec: GangSpec) -> str | None:
        """The absolute `output_dir`, which is on this machine."""
        return None if spec.output_dir is None else str(spec.output_dir.absolute())

    def attach(
        self,
        handle: Handle,
        *,
        spec: GangSpec | None = None,
        on_line: Callable[[OutputLine], None] | None = None,
        on_exit: Callable[[Exit], None] | None = None,
    ) -> WatchedGang:
        """The gang that an earlier process started with the `output_dir` that is its handle."""
        folder = Path(handle)
        record = GangRecord.read(folder)
        self._connect()
        actors = _find_actors(record)
        if not record.members:
            _end(actors, record)
            raise InputError(f"the gang in {handle!r} was never started completely. Start it again.")
        starter = self._starter(spec or GangSpec(["-"], 1, output_dir=folder), record=record)
        started = _started(actors)
        if spec is None and len(started) < len(actors):
            _end(actors, record)
            raise InputError(f"only {len(started)} of {len(actors)} members of the gang in {handle!r} were started.")
        members: list[Member] = [
            _adopt(one, actors.get(one.actor), starter, folder=folder, is_started=one.actor in started)
            for one in record.members
        ]
        used: Any = starter if spec is not None else NoStarter(members)
        return WatchedGang(members, starter=used, handle=handle, on_line=on_line, on_exit=on_exit)

    def slots(self) -> int:
        """How many workers with what the options give each fit on the nodes: GPUs where there are any, else CPUs."""
        return sum(node.slots for node in self.nodes())

    def num_gpus(self) -> int:
        """The GPUs of all nodes; none if the options say that workers take none."""
        return sum(node.num_gpus for node in self.nodes())

    def request_room(self, num_workers: int) -> None:
        """Tell the cluster's autoscaler, if it has one. It adds nodes for all of them, busy ones included."""
        self._connect()
        self._autoscaler.ask(self._worker_demand(living_nodes()), num_workers)

    def own_address(self) -> str:
        """The address that this machine has as a node of the cluster."""
        self._connect()
        return str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]

    def nodes(self) -> list[Node]:
        """The nodes that are alive now."""
        self._connect()
        found = living_nodes()
        demand = self._worker_demand(found)
        return [
            Node(
                name=node["NodeManagerHostname"],
                address=node["NodeManagerAddress"],
                slots=num_fitting(demand, node["Resources"]),
                num_gpus=int(node["Resources"].get("GPU", 0)) if demand.get("GPU") else 0,
                id=node["NodeID"],
            )
            for node in found
        ]

    def _worker_demand(self, nodes: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        """What a worker of a gang takes that says nothing about it."""
        has_gpus = any(node["Resources"].get("GPU") for node in nodes)
        return self._options.demand(WORKER, Role((), 1), has_gpus=has_gpus)


def _find_actors(record: GangRecord) -> dict[str, Any]:
    """The actors of a gang that are alive, by name."""
    deadline = time.monotonic() + ATTACH_TIMEOUT_S
    while True:
        try:
            named = ray.util.list_named_actors(all_namespaces=True)
            names = [one["name"] for one in named if one["name"].startswith(f"{record.gang}/")]
            return {name: ray.get_actor(name, namespace=NAMESPACE) for name in names}
        except ValueError:  # one has ended between the two calls
            if time.monotonic() > deadline:
                raise


def _started(actors: Mapping[str, Any]) -> set[str]:
    """The names of the actors whose members were started; one that has no place yet does not answer."""
    calls = {actor.describe.remote(): name for name, actor in actors.items()}
    answered = ray.wait(list(calls), num_returns=len(calls), timeout=ATTACH_TIMEOUT_S)[0] if calls else []
    found = set()
    for call in answered:
        try:
            found |= {calls[call]} if ray.get(call)["is_started"] else set()
        except RayError:  # it has just died, which its member will be told
            found.add(calls[call])
    return found


def _adopt(record: ActorRecord, actor: Any, starter: RayStarter, *, folder: Path, is_started: bool) -> Member:
    """A member that has ended and come home, or that is alive, or that was lost while nobody watched."""
    home = folder / member_stem(record.role, record.rank)
    if home.with_suffix(".json").exists():
        if actor is not None:
            ray.kill(actor)
        return AttachedMember(home.with_suffix(".json"))
    if actor is not None:
        return starter.open_member(record, actor, is_started=is_started)
    return _lost(record, home)


def _lost(record: ActorRecord, home: Path) -> Member:
    write_end(home, role=record.role, rank=record.rank, host=record.host, code=-signal.SIGKILL)
    member = AttachedMember(home.with_suffix(".json"))
    member.is_unreached = True
    return member


def _end(actors: Mapping[str, Any], record: GangRecord) -> None:
    for actor in actors.values():
        ray.kill(actor)
    try:
        ray.util.remove_placement_group(ray.util.get_placement_group(record.gang))
    except (ValueError, RayError):
        return
