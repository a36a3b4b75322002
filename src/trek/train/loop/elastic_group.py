"""ElasticGroup: workers that come and go. Forms a group with whoever is there, and gives everybody the furthest state.

Everything that workers do together is either in the state or not: a step is applied by all survivors or by none. When
a worker is lost, the others leave the broken group, meet at the coordinator, form a smaller one in the same processes,
take the state of the one that came furthest where they are behind, and do again what was interrupted. A worker that
joins comes in at the start of a batch, with the state of the others.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar

from trek.data.loaders.base import do_nothing
from trek.elastic.coordinator_client import Dismissed, Formation, MemberClient
from trek.elastic.membership import NOTHING, Progress
from trek.elastic.shards import ShardPlan
from trek.errors import InputError
from trek.strategies.base import GroupBroken
from trek.strategies.regrouping import Regrouping
from trek.train.loop.done_log import DoneLog, Key
from trek.train.loop.stopping import Stopped, StopRequest
from trek.train.loop.worker_group import Part, Rewound, WorkerGroup

if TYPE_CHECKING:
    from trek.train.loop.run_state import RunState

T = TypeVar("T")

_MAX_ATTEMPTS = 5
"""So often a group may break at the same place, without the loss of a worker, before the error is taken for one of the
program."""


class LoggedPart(Part):
    """A part that is in the log once it is done: by this worker, or by the one whose log it took over."""

    def __init__(self, log: DoneLog, key: Key) -> None:
        self._log = log
        self._key = key

    @property
    def is_done(self) -> bool:  # type: ignore[override]
        """Whether the state has it."""
        return self._key in self._log

    @property
    def result(self) -> Any:
        """What it gave."""
        return self._log[self._key]

    def end(self, result: Any) -> None:
        """The state has it from now on."""
        self._log.add(self._key, result)


class ElasticGroup(WorkerGroup):
    """One worker's side."""

    is_elastic = True
    _has_joined: ClassVar[bool] = False
    """Whether this process has trained already: its job is over with that, and nobody would come to another one."""

    state: RunState
    """That of the run which the group trains, from `join` on."""

    def __init__(self, member: MemberClient, strategy: Regrouping, *, stop: StopRequest) -> None:
        self._member = member
        self._stop = stop
        self._is_stopping = False
        """Whether the whole job is to stop."""
        self._strategy = strategy
        self._start: Callable[[bool], Any] | None = None
        self._begin_generation: Callable[[], None] = do_nothing
        self._has_state = False
        """Whether this worker has the state of the job, which it gets when it joins."""
        self._is_catching_up = False
        self._has_asked_to_leave = False
        self.began_in = 0
        """The generation in which the run began, or began anew because nobody was left."""
        self._depth = 0
        self._pending: Key = ("", 0, 0)
        self._peers: frozenset[str] = frozenset()
        """The members of the present generation."""
        self._attempts: list[Progress] = []
        """Where the group broke since a member was lost last."""

    @property
    def wants_meeting(self) -> bool:  # type: ignore[override]
        """Whether somebody is to join or to leave at the next step boundary."""
        return self._member.wants_regroup

    @property
    def progress(self) -> Progress:
        """How far the state of this worker is."""
        return self.state.progress if self._has_state else NOTHING

    # -- what is done together

    def together(self, name: str, action: Callable[[], T]) -> T:
        """Do `action` with all members; again if the group broke, unless others had completed it.

        Inside of another action it is a part of that. Inside of a batch the whole batch is done again instead.
        """
        if self._depth:
            return action()
        part = self.part(name)
        while not part.is_done:
            try:
                part.end(self._inside(action))
                if not self.is_in_batch:
                    self.state.mark()
            except GroupBroken:
                self.regroup_between()
                part = self.part(name) if self.is_interrupted else part
        result: T = part.result
        return result

    def part(self, name: str) -> Part:
        """Done already, if the others did it long ago, or if it will be done again with the batch it belongs to."""
        if self._is_catching_up or self.is_interrupted:
            skipped = Part()
            skipped.end(None)
            return skipped
        return LoggedPart(self.state.done, self._next_key(name))

    def _inside(self, action: Callable[[], T]) -> T:
        self._check_in()
        self._depth += 1
        try:
            return action()
        finally:
            self._depth -= 1

    def interrupt(self) -> None:
        """The batch is done again when the loop comes back from the caller's code."""
        self.is_interrupted = True

    def has_done(self, name: str) -> bool:
        """Whether this part of the current batch is in the state already."""
        self._pending = self._next_key(name)
        return self._pending in self.state.done

    def note_done(self, name: str) -> None:
        """The part that `has_done` asked about has changed the state."""
        self.state.done.add(self._pending, None)

    def complete(self) -> None:
        """Nothing before this batch is ever done again."""
        self.state.done.clear()
        self.state.mark()
        self._member.progress = self.progress

    def _next_key(self, name: str) -> Key:
        return self.state.done.next_key(name, self.state.position.batches)

    # -- who is there

    def join(self, start: Callable[[bool], T], *, state: RunState, begin_generation: Callable[[], None]) -> T | None:
        """Become a member; a worker that comes later takes the state of the others."""
        if self._start is not None:
            return None
        if ElasticGroup._has_joined:
            raise InputError(
                "an elastic job is one training, and this process has been in one. Start the second one with a command "
                "of its own, or with a fixed number of workers."
            )
        ElasticGroup._has_joined = True
        self._start, self.state, self._begin_generation = start, state, begin_generation
        self._strategy.is_abandoned = lambda: self._member.is_abandoned
        self._member.on_abandon = self._strategy.abandon
        self._member.waiting_s = self._strategy.waiting_s
        self._member.on_stop = self._stop_all
        self._member.start()
        try:
            formation = self._member.ready()
        except Dismissed as dismissed:
            self._end(dismissed)
        self._is_catching_up = formation.has_source
        try:
            self._enter(formation, handed=None)
        except GroupBroken:
            self.regroup(is_open=True)
        return None

    def catch_up(self) -> None:
        """A worker that joined later falls in with the others here."""
        self._is_catching_up = False

    def meet(self) -> None:
        """Let members join or leave. Those who leave hand over what only they have."""
        handed = None  # if the group breaks here, everybody keeps what is theirs
        with suppress(GroupBroken):
            handed = self._strategy.gather(self.state.unreported())
        self.regroup(is_open=True, handed=handed)

    def leave(self) -> bool:
        """Ask the coordinator, once; it calls a meeting when enough others are there."""
        if self._is_stopping:
            return False
        if not self._has_asked_to_leave:
            self._has_asked_to_leave = True
            self._member.leave("SIGTERM")
        return True

    def _stop_all(self) -> None:
        self._is_stopping = True
        self._stop.request("signal")

    def regroup(self, *, is_open: bool, handed: list[Any] | None = None) -> None:
        """Form the next group. `is_open`: at a place where workers that join fall in with the others.

        In the middle of a batch, the loop does so when it comes back from the caller's code.
        """
        if self.is_in_batch:
            self.interrupt()
            return
        while True:
            self._give_up_if_repeated()
            progress = self.progress
            self.state.rewind()
            self._strategy.leave()
            try:
                formation = self._member.arrive(progress, is_open=is_open)
            except Dismissed as dismissed:
                self._end(dismissed)
            try:
                self._enter(formation, handed=handed)
                return
            except GroupBroken:
                continue

    def regroup_between(self) -> None:
        """`regroup` between two batches; Rewound if the last of them is read again."""
        batches = self.state.position.batches
        self.regroup(is_open=False)
        if self.state.position.batches < batches:
            raise Rewound

    def _enter(self, formation: Formation, *, handed: list[Any] | None) -> None:
        if not self._peers <= formation.members:
            self._attempts.clear()
        self._peers = formation.members
        self._strategy.enter(formation.world)
        self.state.optimization.check_replicas()
        if formation.has_source:
            self._share(handed)
        else:
            self._begin(is_again=formation.world.generation > 1)
        self._has_state, self.is_interrupted = True, False
        if formation.is_open:
            self.state.done.forget(self.state.num_complete)
        self.state.done.rewind(self.state.num_complete)
        self._member.progress = self.progress
        self._begin_generation()

    def _begin(self, *, is_again: bool) -> None:
        """Start from a checkpoint, which everybody reads; without one, with the state that the leader has built."""
        assert self._start is not None
        self.state.done.clear()
        self._is_catching_up = False
        self.began_in = self._strategy.world.generation
        if self._start(is_again) is None:
            if is_again:
                self._strategy.start_over()
            built = self._strategy.broadcast(self.state.handover() if self._strategy.world.is_leader else None)
            if not self._strategy.world.is_leader:
                self.state.take(built, is_start=True)

    def _share(self, handed: list[Any] | None) -> None:
        """Give the leader's state to those who are behind, and to those who join."""
        strategy, own = self._strategy, self.progress
        leaders = strategy.broadcast({"progress": own, "is_handed": handed is not None})
        is_behind = own != tuple(leaders["progress"])
        if strategy.any(is_behind):
            given = {"state": self.state.handover(), "began_in": self.began_in} if strategy.world.is_leader else None
            given = strategy.broadcast(given)
            if is_behind:
                self.began_in = given["began_in"]
                self.state.take(given["state"])
                self._has_state = True
        if leaders["is_handed"]:
            self.state.take_unreported(handed or [] if strategy.world.is_leader else [])

    def _give_up_if_repeated(self) -> None:
        """An error that comes back whenever the same workers form a group again is not the loss of a worker."""
        failure, place = self._strategy.failure, self.progress
        self._attempts = [*(one for one in self._attempts if one == place), place]
        if len(self._attempts) > _MAX_ATTEMPTS and failure is not None:
            raise failure

    # -- shards, for workers that do not step together

    def open_shards(self, queue: str, plan: ShardPlan, *, forgets: str) -> None:
        """Have a queue of shards; the one called `forgets` is over."""
        self._check_in()
        self._member.call("open_shards", queue=queue, plan=asdict(plan), forgets=forgets)

    def next_shard(self, queue: str, *, done: int | None, step: int) -> dict[str, Any]:
        """Commit the lease `done`, and lease the next shard; see the coordinator. A worker that was given up ends."""
        answer: dict[str, Any] = self._member.call("next_shard", queue=queue, done=done, step=step)
        self._check_in()
        return answer

    def close_shards(self, queue: str) -> None:
        """Have nothing more handed out."""
        self._member.call("close_shards", queue=queue)

    # -- the end

    def finish(self) -> None:
        """The job is over, with this worker's result; a worker that is not a member any more ends without one."""
        if self._start is None:
            return
        try:
            self._member.finish()
        except Dismissed as dismissed:
            self._end(dismissed)

    def close(self) -> None:
        """Disconnect: who has not finished is lost to the others."""
        if self._start is not None:
            self._member.close()

    def _check_in(self) -> None:
        try:
            self._member.check_in()
        except Dismissed as dismissed:
            self._end(dismissed)

    def _end(self, dismissed: Dismissed) -> NoReturn:
        raise Stopped("dismissed") from dismissed
