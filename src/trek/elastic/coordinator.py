"""Coordinator: serves a job's membership and its shard queues to the job's processes.

The decisions are those of `Membership` and `ShardQueue`; here are connections, the clock and the journal. A request is
an object `{"id", "do", "with"}`, answered by `{"id", "answer"}` or `{"id", "error"}`; what concerns a member that has
not asked comes as `{"push", …}`. What a request changed is in the journal before anybody is answered, so a coordinator
that takes over the folder of a dead one knows what that one had said. A member whose connection ends is lost: the
kernel closes the connections of a killed process at once.

Everything happens in one event loop, so nothing here needs a lock.
"""

from __future__ import annotations

import asyncio
import socket
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from trek.elastic.actions import Abandon, Action, Dismiss, Fail, Form, PutOut, Regroup
from trek.elastic.journal import Journal
from trek.elastic.member_connection import MemberConnection
from trek.elastic.membership import Membership
from trek.elastic.membership_settings import MembershipSettings
from trek.elastic.shards import ShardPlan, ShardQueue
from trek.errors import InputError
from trek.strategies.job_store_server import JobStoreServer
from trek.system.clock import Clock

_LOOK_S = 0.1
"""How often it looks for members that were not heard of."""
_OF_MEMBERS = ("ready", "arrive", "beat", "leave", "finish")


class Coordinator:
    """One job's. Its folder allows another one to take over."""

    def __init__(
        self, *, secret: str, settings: MembershipSettings, folder: Path, clock: Clock, store: JobStoreServer
    ) -> None:
        self._secret = secret
        self._store = store
        """Where the members of a generation meet."""
        self._clock = clock
        self._settings = settings
        self._journal = Journal(folder / "coordinator.jsonl")
        self._membership = Membership(settings)
        self._queues: dict[str, ShardQueue] = {}
        self._agreed: dict[str, str] = {}
        self._failure: str | None = None
        self._is_stopping = False
        self._put_out: list[str] = []
        self._connections: dict[str, MemberConnection] = {}
        self._restore()

    async def serve(self, listener: socket.socket) -> None:
        """Answer whoever knows the secret. Returns when the job is to stop and its members are gone."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(self._new_connection, sock=listener)
        while not (self._is_stopping and not self._connections):
            self._look()
            await asyncio.sleep(_LOOK_S)
        server.close()

    def stop(self) -> None:
        """Tell all members that the job is to stop; how they do that is up to them."""
        self._is_stopping = True
        self._tell(list(self._connections), {"push": "stop"})

    def _new_connection(self) -> MemberConnection:
        return MemberConnection(self._secret, on_message=self._answer, on_lost=self._lost)

    # -- requests ------------------------------------------------------------------------------------------------

    def _answer(self, connection: MemberConnection, request: dict[str, Any]) -> None:
        """Do what a request asks for; everything that follows is sent after it is in the journal."""
        try:
            answer = {"answer": self._do(connection, request["do"], request["with"])}
        except InputError as error:
            answer = {"error": str(error)}
        self._journal.flush()
        connection.send({"id": request["id"], **answer})

    def _do(self, connection: MemberConnection, do: str, arguments: dict[str, Any]) -> Any:
        if do in _OF_MEMBERS:
            return self._change(do, connection.member, **arguments)
        handler = getattr(self, f"_do_{do}", None)
        if handler is None:
            raise InputError(f"the coordinator has no request {do!r}. Use the same version of Trek in every process.")
        return handler(connection, **arguments)

    def _do_join(self, connection: MemberConnection, *, name: str, host: str) -> None:
        before = self._connections.get(name)
        connection.member = name
        self._connections[name] = connection
        if before is not None:
            before.close()
        self._change("join", name, host=host)

    def _do_lose(self, connection: MemberConnection, *, name: str, reason: str) -> None:
        self._lose(name, reason)

    def _do_scale(self, connection: MemberConnection, *, num_workers: int) -> int:
        self._act(self._membership.scale(num_workers, now_s=self._clock.monotonic_s()))
        self._keep_membership()
        return self._membership.target

    def _do_status(self, connection: MemberConnection, *, num_changes: int = 0) -> dict[str, Any]:
        """How the job stands, with the changes after the first `num_changes`."""
        membership = self._membership
        shift_s = self._clock.now_s() - self._clock.monotonic_s()
        changes = [replace(change, at_s=change.at_s + shift_s) for change in membership.changes[num_changes:]]
        return {
            "generation": membership.generation,
            "target": membership.target,
            "num_training": membership.num_training,
            "num_missing": membership.num_missing,
            "num_advances": membership.num_advances,
            "members": {m.name: m.state for m in membership.members.values()},
            "former": membership.former,
            "put_out": self._put_out,
            "changes": [asdict(change) for change in changes],
            "is_over": membership.is_over,
            "failure": self._failure,
        }

    def _do_agree(self, connection: MemberConnection, *, key: str, value: str | None) -> str | None:
        """The first value that anybody gave for `key`."""
        if key not in self._agreed and value is not None:
            self._agreed[key] = value
            self._journal.add(["agreed", key, value])
        return self._agreed.get(key)

    def _do_open_shards(
        self, connection: MemberConnection, *, queue: str, plan: dict[str, Any], forgets: str = ""
    ) -> None:
        """Have a queue; the one called `forgets` is over, and nobody will ask about it again."""
        asked = ShardPlan(**plan)
        if queue not in self._queues:
            self._queues[queue] = ShardQueue(asked)
            self._journal.add(["queue", queue, self._queues[queue].snapshot()])
        elif self._queues[queue].plan != asked:
            raise InputError(f"shards {queue!r} are {self._queues[queue].plan}, but {asked} were asked for.")
        if forgets in self._queues:
            del self._queues[forgets]
            self._journal.add(["forget", forgets])

    def _do_next_shard(
        self, connection: MemberConnection, *, queue: str, done: int | None = None, step: int = 0
    ) -> dict[str, Any]:
        """Commit the lease `done`, and lease the next shard: one round trip for each shard.

        A worker has one lease at a time. If the answer to this request was lost and it is repeated, so is the answer.
        """
        shards, now_s, member = self._queue(queue), self._clock.monotonic_s(), connection.member
        if member not in self._membership.members:  # it was given up, and is being told so
            return {"is_accepted": False, "is_done": shards.is_done, "reach": shards.reach}
        is_accepted = done is None or self._shard_call(queue, "commit", done, step=step)
        if done is not None and is_accepted:
            self._membership.note_work()
        lease = shards.held_by(member) or self._shard_call(queue, "claim", member, now_s=now_s)
        answer: dict[str, Any] = {"is_accepted": is_accepted, "is_done": shards.is_done, "reach": shards.reach}
        if lease is not None:
            shard = lease.shard
            answer["lease"] = [lease.number, shard.start, shard.stop, lease.is_again]
        return answer

    def _do_close_shards(self, connection: MemberConnection, *, queue: str) -> None:
        self._shard_call(queue, "close")

    def _do_commit_shard(self, connection: MemberConnection, *, queue: str, number: int, step: int) -> bool:
        return bool(self._shard_call(queue, "commit", number, step=step))

    def _do_count_shards(self, connection: MemberConnection, *, queue: str) -> dict[str, Any]:
        shards = self._queue(queue)
        return {**asdict(shards.counts), "is_done": shards.is_done}

    def _shard_call(self, queue: str, method: str, *arguments: Any, **named: Any) -> Any:
        shards = self._queue(queue)
        self._journal.add(["shards", queue, method, arguments, named])
        return getattr(shards, method)(*arguments, **named)

    def _queue(self, name: str) -> ShardQueue:
        if name not in self._queues:
            raise InputError(f"shards {name!r} are not open. Open them with open_shards first.")
        return self._queues[name]

    # -- membership ----------------------------------------------------------------------------------------------

    def _change(self, method: str, name: str | None, **arguments: Any) -> None:
        """Call the membership about one member, keep what it became, and do what follows."""
        now_s = self._clock.monotonic_s()
        if "progress" in arguments:
            arguments["progress"] = tuple(arguments["progress"])
        actions = getattr(self._membership, method)(name, **arguments, now_s=now_s)
        if method == "beat":
            self._renew(str(name), now_s)
        if method != "beat" or actions:
            self._keep_membership()
        self._act(actions)

    def _renew(self, name: str, now_s: float) -> None:
        for queue, shards in self._queues.items():
            if shards.holds(name):
                self._shard_call(queue, "renew", name, now_s=now_s)

    def _look(self) -> None:
        """Act on what the passing of time alone brings about."""
        actions = self._membership.expire(self._clock.monotonic_s())
        if any(not isinstance(action, Regroup | Abandon) for action in actions):  # those repeat what is kept already
            self._keep_membership()
        self._act(actions)
        self._journal.flush()
        if self._journal.is_long:
            self._journal.replace(self._summary())

    def _lost(self, connection: MemberConnection) -> None:
        name = connection.member
        if name is not None and self._connections.get(name) is connection:
            del self._connections[name]
            self._lose(name, "its connection ended")

    def _lose(self, name: str, reason: str) -> None:
        self._change("lose", name, reason=reason)
        self._release(name)
        self._journal.flush()

    def _release(self, name: str) -> None:
        for queue, shards in self._queues.items():
            if shards.holds(name):
                self._shard_call(queue, "release", name)

    def _act(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Form):
                self._store.forget(f"{action.generation - 1}/")
                message = {"push": "form", "store_port": self._store.port, **asdict(action)}
                self._tell([seat.member for seat in action.seats], message)
            elif isinstance(action, Regroup | Abandon):
                word = "regroup" if isinstance(action, Regroup) else "abandon"
                self._tell(list(self._connections), {"push": word, "generation": action.generation})
            elif isinstance(action, Dismiss):
                self._tell([action.member], {"push": "dismiss", "reason": action.reason})
                self._release(action.member)
            elif isinstance(action, PutOut):
                if action.member not in self._put_out:
                    self._put_out.append(action.member)
                    self._journal.add(["put_out", action.member])
                self._release(action.member)
            elif isinstance(action, Fail):
                self._failure = action.reason

    def _tell(self, names: list[str], message: dict[str, Any]) -> None:
        self._journal.flush()
        for name in names:
            if name in self._connections:
                self._connections[name].send(message)

    # -- keeping -------------------------------------------------------------------------------------------------

    def _keep_membership(self) -> None:
        self._journal.add(["membership", self._membership.snapshot()])

    def _summary(self) -> list[Any]:
        queues = [["queue", name, queue.snapshot()] for name, queue in self._queues.items()]
        agreed = [["agreed", key, value] for key, value in self._agreed.items()]
        put_out = [["put_out", name] for name in self._put_out]
        return [["membership", self._membership.snapshot()], *queues, *agreed, *put_out]

    def _restore(self) -> None:
        now_s = self._clock.monotonic_s()
        for kind, *entry in self._journal.entries:
            if kind == "membership":
                self._membership = Membership.restore(self._settings, entry[0], now_s=now_s)
            elif kind == "queue":
                self._queues[entry[0]] = ShardQueue.restore(entry[1])
            elif kind == "agreed":
                self._agreed[entry[0]] = entry[1]
            elif kind == "forget":
                self._queues.pop(entry[0], None)
            elif kind == "put_out":
                self._put_out.append(entry[0])
            else:
                queue, method, arguments, named = entry
                getattr(self._queues[queue], method)(*arguments, **named)
        for shards in self._queues.values():
            shards.renew_all(now_s)
        if self._journal.entries:  # what is written from now on follows from the renewed leases
            self._journal.replace(self._summary())
