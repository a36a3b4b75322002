"""Membership: which processes are the workers of a job, generation by generation.

Pure: calls in, actions out, the time is an argument; the same calls give the same actions. A generation is a fixed set
of workers with ranks. It ends when its members *arrive*: at a step boundary that they agreed on, because somebody wants
to join or to leave, or because a collective broke, since somebody died. Once every member that is still alive has
arrived, the next generation is formed from them and from those who are ready to join.

Contracts:

- The furthest arrived state wins: `Form.source` names a member whose progress nobody exceeds. It has rank 0 and gives
  its state to those who are behind. Members that joined have no progress of their own until they have received it.
- Members arrive at an *open* place, where a process that joins can fall in with them, or in the middle of something
  that they do together. Unless all of them are at an open place, the next generation has no joiners, and may be smaller
  than the minimum: its members go on to the next open place.
- A process that was put out, or that speaks of a generation that is over, is refused and ends. Names are never reused.
- Once a generation has ended for one of its members, all that still train in it are abandoned, whatever waits: what
  they do together can no longer complete. A member that goes on waiting for its peers regardless is put out.
- Nobody is forgotten: a member leaves the membership by finishing, by leaving, or by being lost, with a reason.
- Without any survivor, the next generation has no source and goes on from the last checkpoint. That is a restart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from enum import StrEnum
from typing import Any, TypeAlias

from trek.elastic.actions import Abandon, Action, Dismiss, Fail, Form, PutOut, Regroup, Seat
from trek.elastic.membership_settings import MembershipSettings

Progress: TypeAlias = tuple[int, int]
"""Completed steps, and what was completed after the last of them. Larger is further."""

NOTHING: Progress = (-1, 0)
"""The progress of a process that has no state of the job yet."""


class MemberState(StrEnum):
    """Where a member stands."""

    PREPARING = "preparing"
    READY = "ready"
    TRAINING = "training"
    ARRIVED = "arrived"


@dataclass(frozen=True)
class Member:
    """A process that belongs to the job now."""

    name: str
    host: str
    state: MemberState = MemberState.PREPARING
    rank: int = -1
    """In the generation it belongs to; -1 before its first."""
    progress: Progress = NOTHING
    seen_s: float = 0.0
    ready_at: int = 0
    """Orders those who are ready by when they became so."""
    is_leaving: bool = False
    is_open: bool = True
    """Whether it arrived at an open place."""


@dataclass(frozen=True)
class Change:
    """Something that happened, for people to read."""

    at_s: float
    generation: int
    member: str
    text: str

    @property
    def sentence(self) -> str:
        """For a line of output: workers are named by their rank in the gang, with which their names begin."""
        return f"worker {self.member.partition('-')[0]} {self.text}" if self.member else f"the job {self.text}"


class Membership:
    """The state machine. Every method returns the actions that follow from the call."""

    def __init__(self, settings: MembershipSettings, *, num_workers: int | None = None) -> None:
        self.settings = settings
        self.generation = 0
        self.target = self._clamp(num_workers if num_workers is not None else settings.max_workers)
        self.members: dict[str, Member] = {}
        self.changes: list[Change] = []
        self.num_restarts = 0
        self.is_over = False
        self._refused: dict[str, str] = {}
        self._is_meeting = True
        """Whether no generation is running: the members of the last one are arriving, or there was none yet."""
        self._ended_s = 0.0
        """When the last generation ended, or the job."""
        self._formed: Form | None = None
        self._enough_since_s: float | None = None
        self._num_ready = 0
        self._num_losses = 0
        self._lost_since_s = 0.0
        """When the first of these losses was."""
        self.num_advances = 0
        """How often the job was seen to have completed something."""
        self._furthest: Progress = NOTHING

    @property
    def num_missing(self) -> int:
        """How many more processes the starter should start."""
        staying = sum(not member.is_leaving for member in self.members.values())
        return 0 if self.is_over else max(self.target - staying, 0)

    @property
    def former(self) -> list[str]:
        """Those who were members."""
        return list(self._refused)

    @property
    def num_training(self) -> int:
        """The size of the generation that is running or ending."""
        return len(self._trainees())

    # -- calls of workers ----------------------------------------------------------------------------------------

    def join(self, name: str, *, host: str, now_s: float) -> list[Action]:
        """A process says that it belongs to the job; again, when its connection was lost."""
        if name in self._refused or self.is_over:
            return [Dismiss(name, self._refused.get(name, "the job has ended"))]
        if name in self.members:
            self._see(name, now_s)
            return self._missed(name)
        self.members[name] = Member(name, host, seen_s=now_s)
        return []

    def ready(self, name: str, *, now_s: float) -> list[Action]:
        """It has imported everything and opened its data: it could train from the next boundary on."""
        if refusal := self._refusal(name):
            return [refusal]
        self._see(name, now_s)
        if self.members[name].state is MemberState.PREPARING:
            self._num_ready += 1
            self._update(name, state=MemberState.READY, ready_at=self._num_ready)
        elif self.members[name].state is MemberState.TRAINING:
            return self._formed_again()
        return self._consider(now_s)

    def arrive(
        self, name: str, *, generation: int, progress: Progress, now_s: float, is_open: bool = True
    ) -> list[Action]:
        """A member of a generation has left its collectives, with a state of this progress."""
        if refusal := self._refusal(name):
            return [refusal]
        if self.is_over:  # somebody has a result already
            return self._refuse(name, "the job has ended", now_s=now_s)
        member = self.members[name]
        self._see(name, now_s)
        if generation == self.generation - 1 and member.state is MemberState.TRAINING:
            return self._formed_again()
        if generation != self.generation or member.state not in (MemberState.TRAINING, MemberState.ARRIVED):
            return self._refuse(name, f"generation {generation} is over", now_s=now_s)
        self._note_progress(progress)
        self._update(name, state=MemberState.ARRIVED, progress=progress, is_open=is_open)
        return self._meet(now_s)

    def beat(self, name: str, *, progress: Progress = NOTHING, waiting_s: float = 0.0, now_s: float) -> list[Action]:
        """It is alive, this far, and has waited for its peers so long."""
        if refusal := self._refusal(name):
            is_stuck = waiting_s > self.settings.stuck_s
            return [refusal, *([PutOut(name, refusal.reason)] if is_stuck else [])]
        self._see(name, now_s)
        self._note_progress(progress)
        if not self._is_stuck(self.members[name], waiting_s, now_s):
            return []
        return self._put_out(name, f"still waited in generation {self.generation}, which has ended", now_s=now_s)

    def note_work(self) -> None:
        """Workers complete something: those that are lost from now on are counted anew."""
        self._num_losses = 0
        self.num_advances += 1

    def leave(self, name: str, *, reason: str, now_s: float) -> list[Action]:
        """A member wants to end at the next step boundary."""
        if refusal := self._refusal(name):
            return [refusal]
        member = self.members[name]
        if member.state in (MemberState.PREPARING, MemberState.READY):
            return self._refuse(name, reason, now_s=now_s)
        if not member.is_leaving:
            self._update(name, is_leaving=True)
            self._note(now_s, name, f"leaves: {reason}")
        return self._consider(now_s)

    def finish(self, name: str, *, generation: int, now_s: float) -> list[Action]:
        """A member has trained to the end, and needs nobody any more: the job is over, with its result.

        What a process did that was refused here is not the job's: only an accepted finish makes a result count.
        """
        if refusal := self._refusal(name):
            return [refusal]
        if generation != self.generation:
            return self._refuse(name, f"generation {generation} is over", now_s=now_s)
        was_over, self.is_over = self.is_over, True
        if not (was_over or self._is_meeting):
            self._ended_s = now_s
        del self.members[name]
        self._refused[name] = "the job has ended"
        waiting = [] if was_over else [m.name for m in self.members.values() if m.state is not MemberState.TRAINING]
        return [action for other in waiting for action in self._refuse(other, "the job has ended", now_s=now_s)]

    # -- calls of whoever started them ---------------------------------------------------------------------------

    def lose(self, name: str, *, reason: str, now_s: float) -> list[Action]:
        """A member is dead, or can no longer be reached."""
        if name not in self.members:
            return []
        was_training = self.members[name].state is MemberState.TRAINING
        self._remove(name, reason, told=f"was lost: {reason}", now_s=now_s)
        if self.is_over:
            return [Abandon(self.generation)] if was_training else []
        if self._is_hopeless(now_s):
            lost_s = now_s - self._lost_since_s
            return self._fail(
                f"{self._num_losses} workers were lost within {lost_s:.0f} s without a step completed between them",
                now_s,
            )
        return self._meet(now_s) if was_training else self._consider(now_s)

    def expire(self, now_s: float) -> list[Action]:
        """Put out the members that were not heard of for too long; form what was waited with."""
        silent = [m for m in self.members.values() if now_s - m.seen_s > self.settings.heartbeat_s]
        actions: list[Action] = []
        for member in silent:
            actions += self._put_out(member.name, f"not heard of for {now_s - member.seen_s:.0f} s", now_s=now_s)
        return actions or self._consider(now_s)

    def scale(self, num_workers: int, *, now_s: float) -> list[Action]:
        """Another number of workers is wanted from now on, within the range of the settings."""
        self.target = self._clamp(num_workers)
        outside = [m for m in self.members.values() if m.state in (MemberState.PREPARING, MemberState.READY)]
        room = max(self.target - len(self._trainees()), 0)
        spare = sorted(outside, key=lambda m: (m.state is MemberState.PREPARING, m.ready_at))[room:]
        dismissed = [a for m in spare for a in self._refuse(m.name, "fewer workers are wanted", now_s=now_s)]
        return [*dismissed, *self._consider(now_s)]

    # -- keeping -------------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Everything, as JSON can hold it. When members were last heard of is not kept: see `restore`."""
        return {
            "members": [asdict(member) for member in self.members.values()],
            "changes": [astuple(change) for change in self.changes],
            "formed": asdict(self._formed) if self._formed else None,
            **{name: getattr(self, name) for name in _KEPT},
        }

    @classmethod
    def restore(cls, settings: MembershipSettings, snapshot: Mapping[str, Any], *, now_s: float) -> Membership:
        """The membership whose `snapshot` this is; its members count as heard of now, since nobody listened before."""
        made = cls(settings)
        for name in _KEPT:
            setattr(made, name, snapshot[name])
        made.members = {one["name"]: _member(one, now_s=now_s) for one in snapshot["members"]}
        made.changes = [Change(*change) for change in snapshot["changes"]]
        made._furthest = (made._furthest[0], made._furthest[1])
        made._ended_s = now_s
        if formed := snapshot["formed"]:
            seats = tuple(Seat(**seat) for seat in formed["seats"])
            made._formed = Form(formed["generation"], seats, formed["source"], formed["is_open"])
        return made

    # -- decisions -----------------------------------------------------------------------------------------------

    def _consider(self, now_s: float) -> list[Action]:
        """What the present members call for."""
        if self.is_over:
            return []
        if not self._is_meeting or any(True for _ in self._in_state(MemberState.TRAINING)):
            return self._summons()
        chosen = self._choose()
        if self._is_open() and (len(chosen) < self.settings.min_workers or self._is_settling(chosen, now_s)):
            return []
        return self._form(chosen, now_s)

    def _summons(self) -> list[Action]:
        """What those who train are to know: that their generation has ended, or is to end at the next boundary.

        They learn it again and again until they have arrived, or are lost. Workers that do not depend on each other at
        every step go on when their generation is abandoned, and hurry only if a worker waits to join.
        """
        if not self._is_meeting:
            return [Regroup(self.generation)] if self._wants_change() else []
        is_awaited = any(True for _ in self._in_state(MemberState.READY))
        return [Abandon(self.generation), *([Regroup(self.generation)] if is_awaited else [])]

    def _wants_change(self) -> bool:
        """Whether meeting now would give another set of workers. A member leaves only when enough others are there."""
        trainees = self._trainees()
        num_staying = sum(not member.is_leaving for member in trainees)
        num_ready = sum(True for _ in self._in_state(MemberState.READY))
        can_leave = num_staying + num_ready >= self.settings.min_workers
        return (
            num_staying > self.target
            or (num_staying < len(trainees) and can_leave)
            or (num_ready > 0 and len(trainees) < self.target)
        )

    def _choose(self) -> list[Member]:
        """Who makes up the next generation, those who stay before those who join.

        A member that leaves stays once more where too few would be left, or if it is the only one with the furthest
        state: it would take steps along that others have seen the results of.
        """
        arrived = sorted(self._in_state(MemberState.ARRIVED), key=lambda member: member.rank)
        ready = self._in_state(MemberState.READY) if self._is_open() else ()
        joining = sorted(ready, key=lambda member: member.ready_at)
        staying = [member for member in arrived if not member.is_leaving][: self.target]
        furthest = max((member.progress for member in arrived), default=NOTHING)
        if arrived and not any(member.progress == furthest for member in staying):
            keeper = next(member for member in arrived if member.progress == furthest)
            staying = [*staying[: self.target - 1], keeper]
        num_short = self.settings.min_workers - len(staying) - len(joining)
        others = [member for member in arrived if member not in staying]
        staying = sorted([*staying, *others[: max(num_short, 0)]], key=lambda member: member.rank)
        return [*staying, *joining[: max(self.target - len(staying), 0)]]

    def _is_open(self) -> bool:
        return all(member.is_open for member in self._in_state(MemberState.ARRIVED))

    def _is_settling(self, chosen: list[Member], now_s: float) -> bool:
        """Whether to wait a little for workers that are starting: only before the first generation."""
        if self.generation or len(chosen) >= self.target:
            return False
        if self._enough_since_s is None:
            self._enough_since_s = now_s
        is_starting = any(True for _ in self._in_state(MemberState.PREPARING)) or self.num_missing > 0
        return is_starting and now_s - self._enough_since_s < self.settings.settle_s

    def _form(self, chosen: list[Member], now_s: float) -> list[Action]:
        survivors = [member for member in chosen if member.progress > NOTHING]
        if self.generation and not survivors:
            self.num_restarts += 1
            if self.num_restarts > self.settings.max_restarts:
                return self._fail(_no_survivor(self.settings.max_restarts), now_s)
        source = max(survivors, key=lambda member: (member.progress, -member.rank), default=None)
        chosen = sorted(chosen, key=lambda member: member is not source)
        is_open = self._is_open()
        staying = {member.name for member in chosen}
        spare = [m.name for m in self._in_state(MemberState.ARRIVED) if m.name not in staying]
        self.generation += 1
        self._is_meeting = False
        dismissed = [a for name in spare for a in self._refuse(name, "left the job", now_s=now_s)]
        seats = _seats(chosen)
        for seat in seats:
            if self.members[seat.member].state is MemberState.READY:
                self._note(now_s, seat.member, f"joins as rank {seat.rank}")
            self._update(seat.member, state=MemberState.TRAINING, rank=seat.rank)
        num = f"{len(seats)} worker{'s' * (len(seats) > 1)}"
        self._note(now_s, "", f"starts with {num}" if self.generation == 1 else f"goes on with {num}")
        self._formed = Form(self.generation, tuple(seats), source.name if source else None, is_open)
        return [*dismissed, *self._formed_again()]

    def _formed_again(self) -> list[Action]:
        """The present generation, and whether it has ended already or is to meet again at once."""
        assert self._formed is not None, "a member trains only in a generation"
        return [self._formed, *self._summons()]

    def _missed(self, name: str) -> list[Action]:
        """What a member may not have heard because its connection was lost."""
        if self.members[name].state is not MemberState.TRAINING:
            return []  # it repeats what it waits for
        return self._summons()

    def _meet(self, now_s: float) -> list[Action]:
        """The generation has ended for at least one of its members: the others are to arrive too."""
        if not self._is_meeting:
            self._is_meeting, self._ended_s = True, now_s
        return self._consider(now_s)

    def _is_stuck(self, member: Member, waiting_s: float, now_s: float) -> bool:
        """Whether it waits for peers that will never come, and has not noticed for too long."""
        has_ended = self._is_meeting or self.is_over
        waited_s = min(waiting_s, now_s - self._ended_s)
        return has_ended and member.state is MemberState.TRAINING and waited_s > self.settings.stuck_s

    def _is_hopeless(self, now_s: float) -> bool:
        """Count a loss: whether the job loses worker after worker, and completes nothing between them."""
        if not self._num_losses:
            self._lost_since_s = now_s
        self._num_losses += 1
        return self._num_losses > self.settings.max_losses and now_s - self._lost_since_s > self.settings.loss_s

    def _fail(self, reason: str, now_s: float) -> list[Action]:
        self.is_over = True
        self._note(now_s, "", f"failed: {reason}")
        return [Fail(reason)]

    # -- bookkeeping ---------------------------------------------------------------------------------------------

    def _refusal(self, name: str) -> Dismiss | None:
        if name in self.members:
            return None
        return Dismiss(name, self._refused.get(name, "the job does not know this process"))

    def _refuse(self, name: str, reason: str, *, now_s: float) -> list[Action]:
        self._remove(name, reason, told=f"is dismissed: {reason}", now_s=now_s)
        return [Dismiss(name, reason)]

    def _put_out(self, name: str, reason: str, *, now_s: float) -> list[Action]:
        return [PutOut(name, reason), *self.lose(name, reason=reason, now_s=now_s)]

    def _remove(self, name: str, reason: str, *, told: str, now_s: float) -> None:
        self._refused[name] = reason
        self._note(now_s, name, told)
        del self.members[name]

    def _see(self, name: str, now_s: float) -> None:
        self._update(name, seen_s=now_s)

    def _update(self, name: str, **changed: Any) -> None:
        self.members[name] = replace(self.members[name], **changed)

    def _note_progress(self, progress: Progress) -> None:
        if progress > self._furthest:
            self._furthest, self.num_restarts = progress, 0
            self.note_work()

    def _note(self, now_s: float, member: str, text: str) -> None:
        self.changes.append(Change(now_s, self.generation, member, text))

    def _in_state(self, state: MemberState) -> Iterator[Member]:
        return (member for member in list(self.members.values()) if member.state is state)

    def _trainees(self) -> list[Member]:
        return [*self._in_state(MemberState.TRAINING), *self._in_state(MemberState.ARRIVED)]

    def _clamp(self, num_workers: int) -> int:
        return min(max(num_workers, self.settings.min_workers), self.settings.max_workers)


_KEPT = (
    "generation",
    "target",
    "num_restarts",
    "is_over",
    "_refused",
    "_is_meeting",
    "_enough_since_s",
    "_num_ready",
    "_num_losses",
    "_lost_since_s",
    "num_advances",
    "_furthest",
)
"""Attributes that a snapshot holds as they are."""


def _no_survivor(max_restarts: int) -> str:
    if not max_restarts:
        return "no worker survived"
    times = "once" if max_restarts == 1 else f"{max_restarts} times"
    return f"no worker survived, and the job has gone on from its last checkpoint {times} already"


def _member(kept: Mapping[str, Any], *, now_s: float) -> Member:
    steps, after = kept["progress"]
    return Member(**{**kept, "state": MemberState(kept["state"]), "progress": (steps, after), "seen_s": now_s})


def _seats(chosen: Sequence[Member]) -> list[Seat]:
    hosts = Counter(member.host for member in chosen)
    seated: Counter[str] = Counter()
    seats = []
    for rank, member in enumerate(chosen):
        seats.append(Seat(member.name, rank, seated[member.host], hosts[member.host]))
        seated[member.host] += 1
    return seats
