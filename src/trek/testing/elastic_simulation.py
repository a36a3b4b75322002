"""A whole elastic job in one thread, with everything that can go wrong drawn from a seed.

Workers, their collectives, their connections and the starter are simulated; the `Membership` is the real one, and is
restored from its snapshot whenever the simulated coordinator crashes. Messages are delayed at will, connections are
lost with what was under way, workers are killed or stand still for a while, and the wanted number of workers changes.

A worker blocks in a collective until all members of its generation have come to it. If one of them is gone, some of
the others notice by their own connections; the rest wait until the coordinator abandons the generation. A few workers
do not even come out then, and must be evicted.

A worker's state is the history of the steps that it is made of: the number of the step, the generation that computed
it, and who took part. So states are equal only if they came about in the same way, and a step that was lost, applied
twice or computed by a part of its generation shows.
"""

from __future__ import annotations

import json
import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from trek.elastic.actions import Abandon, Action, Dismiss, Fail, Form, PutOut, Regroup, Seat
from trek.elastic.membership import NOTHING, Membership, Progress
from trek.elastic.membership_settings import MembershipSettings

Step = tuple[int, int, tuple[str, ...]]
"""Number, generation, and the members whose shares went into it."""
State = tuple[Step, ...]
_HEARTBEAT = 30


class BrokenInvariant(AssertionError):
    """What must never happen has happened."""


@dataclass(frozen=True)
class SimulationSettings:
    """How long a job is, and how rough."""

    num_steps: int = 12
    min_workers: int = 1
    max_workers: int = 4
    num_rough_ticks: int = 150
    """After so many ticks nothing goes wrong any more, and the job must come to its end."""
    max_ticks: int = 6000
    save_every: int = 4
    kill: float = 0.02
    stand_still: float = 0.01
    get_stuck: float = 0.005
    stuck_s: float = 3 * _HEARTBEAT
    """After which a worker that waits in an ended generation is evicted. With more than `max_ticks` and no worker that
    gets stuck, a job ends only if all that wait are woken up."""
    disconnect: float = 0.02
    crash_coordinator: float = 0.01
    scale: float = 0.01
    leave: float = 0.01


@dataclass
class _Collective:
    """One meeting of the members of a generation: complete for a member once all have contributed."""

    contributions: dict[str, Any] = field(default_factory=dict)


@dataclass
class _Worker:
    name: str
    is_alive: bool = True
    is_connected: bool = False
    still_until: int = 0
    heard_at: int = 0
    """When the coordinator last answered it. A member that was not heard of for too long may have been put out, so it
    computes nothing more before it was answered again."""
    asking: tuple[str, dict[str, Any]] | None = None
    """The call whose answer it waits for, repeated after a lost connection."""
    to_coordinator: deque[tuple[str, dict[str, Any]]] = field(default_factory=deque)
    from_coordinator: deque[Action] = field(default_factory=deque)
    generation: int = 0
    seats: tuple[Seat, ...] = ()
    source: str | None = None
    index: int = 0
    """Of the collective that it takes part in next, within the generation; the first one gives out the state."""
    state: State | None = None
    wants_regroup: bool = False
    is_abandoned: bool = False
    notices_loss: bool = False
    """Whether its own connections tell it in this generation that a peer is gone."""
    waits_since: int | None = None
    """When it entered the collective that it blocks in."""
    is_stuck: bool = False
    """Whether it does nothing but beat while it blocks in a collective, also when that is abandoned."""
    has_ended: bool = False

    @property
    def progress(self) -> Progress:
        return NOTHING if self.state is None else (len(self.state), 0)

    @property
    def is_training(self) -> bool:
        return self.generation > 0 and self.asking is None and not self.has_ended


class Simulation:
    """One history. `run` returns the state that the job ended with."""

    def __init__(self, seed: int, settings: SimulationSettings | None = None) -> None:
        self.settings = settings or SimulationSettings()
        self.random = random.Random(seed)  # noqa: S311 - repeatable on purpose
        self.tick = 0
        self.workers: dict[str, _Worker] = {}
        self.checkpoint: State = ()
        self.failure: str | None = None
        self.finished: list[State] = []
        self._checked: set[int] = set()
        self._membership = self._new_membership()
        self._collectives: dict[tuple[int, int], _Collective] = {}
        self._results: dict[tuple[int, int], State] = {}

    def run(self) -> State:
        """Play it to the end; BrokenInvariant if anything is not as it must be."""
        while not self._is_over():
            self.tick += 1
            if self.tick > self.settings.max_ticks:
                raise BrokenInvariant(f"the job did not end within {self.tick} ticks:\n{self.describe()}")
            self._start_missing()
            if self.tick <= self.settings.num_rough_ticks:
                self._misfortune()
            self._act()
        return self._checked_result()

    def describe(self) -> str:
        """Where everybody is, for an error."""
        lines = [f"generation {self._membership.generation}, target {self._membership.target}"]
        lines += [str(member) for member in self._membership.members.values()]
        lines += [str(worker) for worker in self.workers.values() if worker.is_alive]
        return "\n".join(lines)

    def _is_over(self) -> bool:
        is_idle = not any(worker.is_alive and not worker.has_ended for worker in self.workers.values())
        return self.failure is not None or (self._membership.is_over and is_idle)

    def _checked_result(self) -> State:
        if self.failure is not None:
            return ()
        if not self.finished or any(state != self.finished[0] for state in self.finished):
            raise BrokenInvariant(f"workers finished with different states: {self.finished}")
        numbers = [number for number, _, _ in self.finished[0]]
        if numbers != list(range(self.settings.num_steps)):
            raise BrokenInvariant(f"expected every step once, got {numbers}")
        return self.finished[0]

    # -- the starter and bad luck --------------------------------------------------------------------------------

    def _new_membership(self) -> Membership:
        settings = MembershipSettings(
            self.settings.min_workers,
            self.settings.max_workers,
            heartbeat_s=_HEARTBEAT,
            stuck_s=self.settings.stuck_s,
            settle_s=5.0,
            loss_s=self.settings.max_ticks,
            max_restarts=10_000,
        )
        return Membership(settings)

    def _start_missing(self) -> None:
        alive = [w for w in self.workers.values() if w.is_alive and not w.has_ended]
        unknown = sum(w.name not in self._membership.members for w in alive)
        if self._membership.num_missing > unknown and self.random.random() < 0.5:
            name = f"w{len(self.workers)}"
            self.workers[name] = _Worker(name)

    def _misfortune(self) -> None:
        settings, draw = self.settings, self.random.random
        for worker in [w for w in self.workers.values() if w.is_alive and not w.has_ended]:
            if draw() < settings.kill:
                self._kill(worker)
            elif draw() < settings.stand_still:
                worker.still_until = self.tick + self.random.randrange(100)
            elif draw() < settings.get_stuck:
                worker.is_stuck = True
            elif draw() < settings.disconnect:
                self._disconnect(worker)
            elif draw() < settings.leave and worker.is_connected:
                worker.to_coordinator.append(("leave", {"reason": "asked to"}))
        if draw() < settings.scale:
            self._call("scale", num_workers=self.random.randrange(1, settings.max_workers + 1))
        if draw() < settings.crash_coordinator:
            self._crash_coordinator()

    def _kill(self, worker: _Worker) -> None:
        worker.is_alive = False
        self._disconnect(worker)
        # The kernel closes its connection: the coordinator hears of it, sooner or later.
        worker.to_coordinator.append(("lose", {"reason": "it died"}))

    def _disconnect(self, worker: _Worker) -> None:
        worker.is_connected = False
        worker.to_coordinator.clear()
        worker.from_coordinator.clear()

    def _crash_coordinator(self) -> None:
        for worker in self.workers.values():
            has_died = not worker.is_alive
            self._disconnect(worker)
            if has_died and worker.name in self._membership.members:
                worker.to_coordinator.append(("lose", {"reason": "it died"}))
        kept = json.loads(json.dumps(self._membership.snapshot()))
        self._membership = Membership.restore(self._membership.settings, kept, now_s=self.tick)

    # -- what happens in a tick ----------------------------------------------------------------------------------

    def _act(self) -> None:
        self._deliver(self._membership.expire(self.tick))
        workers = list(self.workers.values())
        self.random.shuffle(workers)
        for worker in workers:
            if worker.to_coordinator and self.random.random() < 0.6:
                self._hear(worker)
            if worker.is_alive and not worker.has_ended and worker.still_until <= self.tick:
                self._let(worker)

    def _hear(self, worker: _Worker) -> None:
        method, arguments = worker.to_coordinator.popleft()
        is_finish = method == "finish" and worker.name in self._membership.members
        self._call(method, worker.name, **arguments)
        if is_finish and self._membership.is_over:
            assert worker.state is not None
            self.finished.append(worker.state)
            self._send([worker.name], Dismiss(worker.name, "the job has ended"))

    def _let(self, worker: _Worker) -> None:
        """One worker does one thing."""
        if not worker.is_connected:
            self._connect(worker)
        self._beat(worker)
        if worker.is_stuck and worker.waits_since is not None and not self._is_complete(worker):
            return
        if worker.from_coordinator and self.random.random() < 0.6:
            self._obey(worker, worker.from_coordinator.popleft())
        elif worker.generation == 0 and worker.asking is None:
            self._ask(worker, "ready")
        elif worker.is_training and self.tick - worker.heard_at <= _HEARTBEAT:
            self._train(worker)

    def _beat(self, worker: _Worker) -> None:
        is_introduced = not any(method == "join" for method, _ in worker.to_coordinator)
        if worker.is_connected and is_introduced and self.random.random() < 0.5:
            worker.heard_at = self.tick
            waiting_s = 0 if worker.waits_since is None else self.tick - worker.waits_since
            self._call("beat", worker.name, progress=worker.progress, waiting_s=waiting_s)

    def _connect(self, worker: _Worker) -> None:
        worker.is_connected = True
        worker.to_coordinator.append(("join", {"host": "here"}))
        if worker.asking is not None:
            worker.to_coordinator.append(worker.asking)

    def _ask(self, worker: _Worker, method: str, **arguments: Any) -> None:
        worker.asking = (method, arguments)
        if worker.is_connected:
            worker.to_coordinator.append(worker.asking)

    def _call(self, method: str, name: str | None = None, **arguments: Any) -> None:
        who = {} if name is None else {"name": name}
        self._deliver(getattr(self._membership, method)(**who, **arguments, now_s=self.tick))

    def _deliver(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Fail):
                self.failure = action.reason
            elif isinstance(action, Form):
                self._check_source(action)
                self._send([seat.member for seat in action.seats], action)
            elif isinstance(action, PutOut):
                worker = self.workers[action.member]
                self._disconnect(worker)
                if worker.is_stuck or self.random.random() < 0.7:  # else it cannot be reached, and wakes up one day
                    worker.is_alive = False
            elif isinstance(action, Dismiss):
                self._send([action.member], action)
            else:
                self._send([w.name for w in self.workers.values() if w.generation == action.generation], action)

    def _send(self, names: list[str], action: Action) -> None:
        for name in names:
            told = self.workers[name].from_coordinator
            if self.workers[name].is_connected and action not in told:
                told.append(action)

    def _check_source(self, form: Form) -> None:
        """Nothing that a survivor completed may be given up; a Form that is told again has been checked before."""
        if form.generation in self._checked:
            return
        self._checked.add(form.generation)
        progress = {seat.member: self.workers[seat.member].progress for seat in form.seats}
        if form.source is not None and progress[form.source] < max(progress.values()):
            raise BrokenInvariant(f"{form.source} gives its state, but somebody is further: {progress}")

    # -- a worker ------------------------------------------------------------------------------------------------

    def _obey(self, worker: _Worker, action: Action) -> None:
        if isinstance(action, Dismiss):
            worker.has_ended = True
        elif isinstance(action, Form) and worker.asking is not None and action.generation > worker.generation:
            self._enter(worker, action)
        elif isinstance(action, Regroup) and action.generation == worker.generation:
            worker.wants_regroup = True
        elif isinstance(action, Abandon) and action.generation == worker.generation:
            worker.is_abandoned = True

    def _enter(self, worker: _Worker, form: Form) -> None:
        worker.asking = None
        worker.generation, worker.seats, worker.source = form.generation, form.seats, form.source
        worker.index = 0
        worker.wants_regroup = worker.is_abandoned = False
        worker.notices_loss = self.random.random() < 0.3

    def _train(self, worker: _Worker) -> None:
        collective = self._collectives.setdefault((worker.generation, worker.index), _Collective())
        if worker.name not in collective.contributions:
            collective.contributions[worker.name] = self._shared(worker)
            worker.waits_since = self.tick
            return
        names = [seat.member for seat in worker.seats]
        if self._is_complete(worker):
            worker.waits_since = None
            self._complete(worker, collective, names)
        elif worker.is_abandoned or (
            worker.notices_loss and any(self._has_left(name, worker.generation) for name in names)
        ):
            worker.waits_since = None
            self._ask(worker, "arrive", generation=worker.generation, progress=worker.progress)

    def _is_complete(self, worker: _Worker) -> bool:
        """Whether all members of its generation have come to the collective that it is in."""
        contributions = self._collectives[worker.generation, worker.index].contributions
        return all(seat.member in contributions for seat in worker.seats)

    def _shared(self, worker: _Worker) -> Any:
        """What it tells the others: first the state, if they are to have its own; then whether it wants to meet."""
        if worker.index > 0:
            return worker.wants_regroup
        return worker.state if worker.source is not None else self.checkpoint

    def _has_left(self, name: str, generation: int) -> bool:
        peer = self.workers[name]
        return not peer.is_alive or peer.has_ended or peer.generation > generation or peer.asking is not None

    def _complete(self, worker: _Worker, collective: _Collective, names: list[str]) -> None:
        is_regroup = False
        if worker.index == 0:
            worker.state = collective.contributions[worker.source or names[0]]
        else:
            assert worker.state is not None
            worker.state = (*worker.state, (len(worker.state), worker.generation, tuple(names)))
            is_regroup = any(collective.contributions.values())
        self._check_equal(worker)
        worker.index += 1
        self._after_step(worker, is_first=names[0] == worker.name, is_regroup=is_regroup)

    def _check_equal(self, worker: _Worker) -> None:
        assert worker.state is not None
        known = self._results.setdefault((worker.generation, worker.index), worker.state)
        if known != worker.state:
            raise BrokenInvariant(f"states differ in generation {worker.generation}: {known} and {worker.state}")

    def _after_step(self, worker: _Worker, *, is_first: bool, is_regroup: bool) -> None:
        assert worker.state is not None
        if len(worker.state) >= self.settings.num_steps:
            self._ask(worker, "finish", generation=worker.generation)
            return
        if is_first and len(worker.state) % self.settings.save_every == 0:
            self.checkpoint = worker.state
        if is_regroup:
            self._ask(worker, "arrive", generation=worker.generation, progress=worker.progress)


def simulate(seeds: range, settings: SimulationSettings | None = None) -> int:
    """Play a history for every seed; how many came to their end."""
    num_finished = 0
    for seed in seeds:
        try:
            num_finished += bool(Simulation(seed, settings).run())
        except BrokenInvariant as error:
            raise BrokenInvariant(f"seed {seed}: {error}") from error
    return num_finished
