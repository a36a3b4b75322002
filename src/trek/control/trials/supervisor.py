"""Runs the gangs of trials on an Engine: starts what the scheduler chose, watches, stops, stores logs, restarts.

It has its own thread. Every decision is written to the store in the same transaction as its cause, and gangs outlive
the supervisor, so that the next one continues where another was killed.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Collection, Sequence

from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from trek.control.checkpoints.checkpoint_files import find_checkpoints, reconcile_checkpoints, remove_unfinished
from trek.control.checkpoints.pending_removals import PendingRemovals
from trek.control.checkpoints.retention import expire_checkpoints
from trek.control.checkpoints.trial_storage import TrialStorage
from trek.control.experiments.parsed_config import parsed_config
from trek.control.experiments.removal import expire_logs, expire_metrics
from trek.control.layout import Layout
from trek.control.metrics.metric_blocks import groups, summarise
from trek.control.store import Store
from trek.control.tables import ExperimentRow, TrialRow
from trek.control.trials.cluster_view import ClusterView, NodeView
from trek.control.trials.elastic_watch import ElasticWatch
from trek.control.trials.endings import Ending
from trek.control.trials.ingest import log_position
from trek.control.trials.log_intake import MAX_LOG_BYTES, LogIntake
from trek.control.trials.room_request import RoomRequest, wanted_workers
from trek.control.trials.running_trial import Running
from trek.control.trials.runs import begin_run, end_run, held_back, occupied, requests
from trek.control.trials.scheduler import Occupied, plan
from trek.control.trials.slot_ranges import slot_range
from trek.control.trials.start_checkpoints import StartCheckpoints
from trek.control.trials.starting_trial import StartingTrial
from trek.control.trials.trial_gangs import OpenGang, TrialGangs
from trek.control.trials.trial_specs import TrialSpecs
from trek.control.trials.unreadable import end_unreadable
from trek.control.trials.worker_changes import record_changes
from trek.engines import Engine, Exit, Gang
from trek.errors import StorageError, TrekError
from trek.experiments.log_patterns import LogPatterns
from trek.system.clock import Clock
from trek.system.home import close_to_others
from trek.train.jobs.servers import restart_server

_LOG = logging.getLogger(__name__)
TICK_S = 0.1
REST_S = 1.0
STOP_GRACE_S = 20.0
TIDY_S = 3600.0
MAX_STARTING = 64
"""How many gangs are started side by side, each on a thread; further ones follow when those are done."""
PEER_GRACE_S = 2.0
"""How long the other processes of a gang may take to end by themselves after one of them has failed."""


class Supervisor:
    """See the module. `environment(trial, run)` gives the variables its processes need to reach the control plane."""

    def __init__(
        self,
        store: Store,
        *,
        layout: Layout,
        engine: Engine,
        slots: int | None = None,
        environment: Callable[[int, int], dict[str, str]],
        clock: Clock,
        max_log_bytes: int = MAX_LOG_BYTES,
        private_variables: Collection[str] = (),
        shared_variables: Collection[str] = (),
        command: Sequence[str] = (sys.executable, "-m", "trek.experiments.trial_worker"),
    ) -> None:
        self._store = store
        self._layout = layout
        self._engine = engine
        self._clock = clock
        self._max_log_bytes = max_log_bytes
        self._cluster = ClusterView(engine, slots=slots, clock=clock)
        self._specs = TrialSpecs(
            layout,
            cluster=self._cluster,
            environment=environment,
            command=command,
            private_variables=private_variables,
            shared_variables=shared_variables,
        )
        self._room = RoomRequest(engine, clock=clock)
        self._gangs = TrialGangs(
            store, engine=engine, specs=self._specs, cluster=self._cluster, layout=layout, clock=clock, wake=self.wake
        )
        self._starting: dict[int, StartingTrial] = {}
        self.running: dict[int, Running] = {}
        self._start_checkpoints = StartCheckpoints(store, layout=layout, clock=clock)
        self._pending_removals = PendingRemovals(store, layout=layout, clock=clock)
        self._next_tidying_s = clock.monotonic_s()
        self._wake = threading.Event()
        self._is_stopping = False
        self._logged = ""
        self._thread = threading.Thread(target=self._work, name="trek-supervisor")

    def start(self) -> None:
        """Find gangs that are still running, then supervise."""
        with self._store.writing() as session:
            for experiment_id in end_unreadable(session, now_s=self._clock.now_s()):
                _LOG.error("experiment %d was ended: its stored config is not valid", experiment_id)
        self._find_gangs()
        self._thread.start()

    def wake(self) -> None:
        """Run the next tick now, because something changed."""
        self._wake.set()

    def stop(self, *, grace_s: float = STOP_GRACE_S) -> None:
        """Let running trials save and end, to be resumed by the next supervisor; returns when they have ended."""
        self._is_stopping = True
        self.wake()
        self._thread.join()
        self._room.withdraw()
        self._end_starts()
        for running in list(self.running.values()):
            running.stop(grace_s=grace_s)
        while any(not one.problem for one in self.running.values()):  # the others are left to the next supervisor
            self._collect()
            self._wake.wait(TICK_S)
            self._wake.clear()

    @property
    def engine_name(self) -> str:
        """The engine that trials run on."""
        return self._engine.name

    @property
    def slots(self) -> int:
        """How many processes can train at once."""
        return self._cluster.slots

    @property
    def has_gpus(self) -> bool:
        """Whether a slot is a GPU, which trials cannot share."""
        return self._cluster.has_gpus

    @property
    def can_grow(self) -> bool:
        """Whether more slots may come, so that a trial that needs them waits."""
        return self._cluster.can_grow

    def nodes(self) -> list[NodeView]:
        """The machines that trials run on, and which trials have processes there."""
        return self._cluster.nodes({trial_id: one.gang for trial_id, one in list(self.running.items())})

    @property
    def free_slots(self) -> int:
        """Slots that no trial holds."""
        return self.slots - len(self._taken_slots())

    def _work(self) -> None:
        while not self._is_stopping:
            try:
                self.tick()
            except (TrekError, SQLAlchemyError, OSError) as error:
                self._log_once(f"{error}".partition("\n")[0])
                pause_s = REST_S
            except Exception as error:  # noqa: BLE001 - what one trial wrote must not end the supervision of others
                self._log_once(f"{type(error).__name__}: {error}".partition("\n")[0], trace=True)
                pause_s = REST_S
            else:
                self._logged = ""
                pause_s = TICK_S if self.running or self._starting else REST_S
            self._wake.wait(pause_s)
            self._wake.clear()

    def _log_once(self, problem: str, *, trace: bool = False) -> None:
        """Log a problem when it begins: a full disk, for example, stays full for many ticks."""
        if problem != self._logged:
            self._logged = problem
            _LOG.error("the supervisor will retry after an error: %s", problem, exc_info=trace)

    def tick(self) -> None:
        """One round: store what happened, act on requests, start what may start."""
        self._tidy()
        self._cluster.refresh()
        self._take_started()
        self._collect()
        self._pending_removals.remove()
        self._stop_killed()
        self._schedule()

    def _tidy(self) -> None:
        if self._clock.monotonic_s() >= self._next_tidying_s:
            self._next_tidying_s = self._clock.monotonic_s() + TIDY_S
            with self._store.writing() as session:
                expire_logs(session, now_s=self._clock.now_s())
                expire_metrics(session, now_s=self._clock.now_s())

    def _collect(self) -> None:
        """Take in what running trials left. What cannot be taken in of one trial is left to the next round."""
        for running in list(self.running.values()):
            try:
                self._collect_from(running)
            except (SQLAlchemyError, StorageError):
                raise
            except Exception as error:  # noqa: BLE001 - what one trial wrote must not hold up the others
                running.note(error)
            else:
                running.problem = ""

    def _collect_from(self, running: Running) -> None:
        if running.elastic is not None:
            self._note_workers(running, running.elastic)
        exits = running.exits()
        has_more = running.logs.take_part(is_over=exits is not None)
        if exits is not None:
            self._take_rest(running, exits, has_more=has_more)
        elif running.elastic is not None:
            return  # a worker that is lost is replaced
        elif running.failed_s is not None and self._clock.monotonic_s() - running.failed_s > PEER_GRACE_S:
            running.stop(grace_s=1.0)
        elif running.failed_s is None and self._has_failed(running.gang):
            running.failed_s = self._clock.monotonic_s()

    def _has_failed(self, gang: Gang) -> bool:
        """Whether a member failed for good: a parameter server that was killed is started again."""
        failed = gang.wait_first_failure(0)
        return failed is not None and not restart_server(gang, failed)

    def _take_rest(self, running: Running, exits: Sequence[Exit], *, has_more: bool) -> None:
        """Take in what an ended gang left, a part in every round so that other trials have their turn; then finish."""
        if has_more:
            self.wake()
        elif not running.spool.is_done:
            running.spool.take_part()
            self.wake()
        else:
            are_reports_lost = any(one.is_unreached for one in exits)  # what it could not deliver was on its machine
            self._finish(running, running.ending(exits), are_reports_lost=are_reports_lost)

    def _note_workers(self, running: Running, elastic: ElasticWatch) -> None:
        """Store who joined and left, and give up the slots that workers have left."""
        changes, num_workers = elastic.take_changes(), elastic.num_training
        held = max(elastic.target, elastic.num_alive)
        kept = running.slots if self.has_gpus else running.slots[:held]
        if not changes and num_workers == running.num_workers and kept == running.slots:
            return
        with self._store.writing() as session:
            trial = session.get_one(TrialRow, running.trial_id)
            record_changes(session, trial, [(one, num_workers) for one in changes], now_s=self._clock.now_s())
            trial.slots = kept
            if trial.num_workers is not None:  # otherwise their number is fixed, and a lost one is replaced
                trial.num_workers = num_workers
        if len(kept) < len(running.slots):
            self.wake()
        running.num_workers, running.slots = num_workers, kept

    def _finish(self, running: Running, ending: Ending, *, are_reports_lost: bool) -> None:
        running.join()
        trial, storage = self._files_of(running)
        if self._layout.run_as is None:  # otherwise they are closed already, and their owner could put links there
            close_to_others(self._layout.trial(trial))
        found = find_checkpoints(storage, owner=trial.uuid)
        if not are_reports_lost:  # a machine that is counted as lost may still write for a while
            remove_unfinished(storage)
        now_s = self._clock.now_s()
        with self._store.writing() as session:
            trial = session.get_one(TrialRow, running.trial_id)
            if found is not None:
                reconcile_checkpoints(session, trial, found, are_reports_lost=are_reports_lost)
            for group in groups(session, trial.id):
                summarise(session, trial.id, group)  # rows of an earlier run that this one did not reach again
            next_ = end_run(session, trial, ending, now_s=now_s, is_shutting_down=self._is_stopping)
            expire_checkpoints(session, session.get_one(ExperimentRow, trial.experiment_id))
        del self.running[running.trial_id]
        _LOG.info("trial %d, run %d: %s %s", running.trial_id, running.run, next_, ending.message)
        self.wake()

    def _files_of(self, running: Running) -> tuple[TrialRow, TrialStorage]:
        with self._store.reading() as session:
            trial = session.get_one(TrialRow, running.trial_id)
            experiment = session.get_one(ExperimentRow, running.experiment_id)
        storage = parsed_config(experiment).checkpoint_storage
        return trial, self._layout.checkpoints(trial, storage, owner=experiment.owner)

    def _stop_killed(self) -> None:
        """Stop trials that were killed. Other requests reach trials in the replies to their reports.

        One that is not started yet reports nothing, and gives up on any request.
        """
        if not self.running and not self._starting:
            return
        with self._store.reading() as session:
            known = TrialRow.id.in_([*self.running, *self._starting])
            asked = session.execute(select(TrialRow.id, TrialRow.wanted).where(known, TrialRow.wanted != "run")).all()
        for trial_id, wanted in asked:
            if trial_id in self._starting:
                self._starting[trial_id].cancel()
            elif wanted == "kill":
                self.running[trial_id].logs.skip_to_end()
                self.running[trial_id].stop(grace_s=2.0)

    def _schedule(self) -> None:
        with self._store.reading() as session:
            queue = requests(session, now_s=self._clock.now_s())
            held = held_back(session, queue)
            held_slots = self._held_slots(session)
        if not queue and all(one.least is None for one in held_slots):
            self._room.ask(0, is_starting=bool(self._starting))
            return
        late = {**self._start_checkpoints.copy_missing(), **held}
        queue = [request for request in queue if request.trial_id not in late]
        made = plan(
            queue,
            held_slots,
            total_slots=self.slots,
            may_oversubscribe=not self.has_gpus,
            can_grow=self.can_grow,
        )
        wanted = wanted_workers(queue, held_slots, made) if self.can_grow else 0
        self._room.ask(wanted, is_starting=bool(made.start or self._starting))
        self._note_waiting({**made.waiting, **late})
        for trial_id in made.start[: MAX_STARTING - len(self._starting)]:
            self._start(trial_id, num_slots=made.sizes[trial_id])
        for trial_id in made.sizes.keys() - made.start:
            self._resize(self.running[trial_id], made.sizes[trial_id])

    def _held_slots(self, session: Session) -> list[Occupied]:
        """What running trials hold. GPUs stay with their trial: its processes have chosen theirs when they started."""
        found: list[Occupied] = []
        for starting in self._starting.values():
            found.append(Occupied(starting.trial.id, starting.experiment.id, len(starting.trial.slots)))
        for running in self.running.values():
            one = Occupied(running.trial_id, running.experiment_id, len(running.slots))
            if running.elastic is not None:
                trial = session.get_one(TrialRow, running.trial_id)
                experiment = session.get_one(ExperimentRow, running.experiment_id)
                if self.has_gpus:
                    running.elastic.scale(min(len(running.slots), slot_range(trial, experiment)[1]))
                else:
                    one = occupied(trial, experiment, slots=len(running.slots))
            found.append(one)
        return found

    def _resize(self, running: Running, num_slots: int) -> None:
        """Let an elastic trial grow, or ask it to shrink; it gives slots up when its workers have left."""
        assert running.elastic is not None, "only elastic trials are given another size"
        if num_slots > len(running.slots):
            running.slots = [*running.slots, *self._take_slots(num_slots - len(running.slots))]
            with self._store.writing() as session:
                session.get_one(TrialRow, running.trial_id).slots = running.slots
        running.elastic.scale(num_slots)

    def _note_waiting(self, waiting: dict[int, str]) -> None:
        with self._store.reading() as session:
            rows = session.execute(select(TrialRow.id, TrialRow.waiting).where(TrialRow.id.in_(list(waiting)))).all()
        changed = {trial_id for trial_id, old in rows if waiting[trial_id] != old}
        if changed:
            with self._store.writing() as session:
                for trial_id in changed:
                    session.get_one(TrialRow, trial_id).waiting = waiting[trial_id]

    def _start(self, trial_id: int, *, num_slots: int) -> None:
        """Begin a run, and have its gang started on another thread: a cluster may have no room for it yet."""
        slots = self._take_slots(num_slots)
        with self._store.writing() as session:
            trial = session.get_one(TrialRow, trial_id)
            if trial.state != "queued":
                return
            begin_run(session, trial, slots=slots, now_s=self._clock.now_s())
            experiment = session.get_one(ExperimentRow, trial.experiment_id)
        self._starting[trial_id] = StartingTrial(experiment, trial, gangs=self._gangs, wake=self.wake)

    def _take_started(self) -> None:
        """Watch the gangs that are there now, end the runs whose gangs cannot be, and note what others wait for."""
        waiting: dict[int, str] = {}
        for trial_id, starting in list(self._starting.items()):
            found = starting.result
            if found is None:
                waiting[trial_id] = starting.waits_for
                continue
            if isinstance(found, OpenGang):
                self.running[trial_id] = self._watch(starting.experiment, starting.trial, found)
                waiting[trial_id] = ""
            else:
                self._end_without_gang(trial_id, found)
            del self._starting[trial_id]
        self._note_waiting(waiting)

    def _end_without_gang(self, trial_id: int, ending: Ending) -> None:
        """Nothing was trained. An end by a stop of the control plane, or for lack of room, is not a restart."""
        with self._store.writing() as session:
            end_run(session, session.get_one(TrialRow, trial_id), ending, now_s=self._clock.now_s())

    def _end_starts(self) -> None:
        """Give up what waits for room; gangs that came to be meanwhile are running ones."""
        while self._starting:
            for starting in self._starting.values():
                starting.cancel()
            self._take_started()
            self._wake.wait(TICK_S)
            self._wake.clear()

    def _take_slots(self, count: int) -> list[int]:
        taken = set(self._taken_slots())
        free = [slot for slot in range(self.slots) if slot not in taken]
        return (free + list(range(self.slots, count)))[:count]

    def _taken_slots(self) -> list[int]:
        running = [slot for one in self.running.values() for slot in one.slots]
        return [*running, *(slot for one in self._starting.values() for slot in one.trial.slots)]

    def _watch(self, experiment: ExperimentRow, trial: TrialRow, found: OpenGang) -> Running:
        gang = found.gang
        with self._store.reading() as session:
            positions = [
                log_position(session, trial_id=trial.id, run=trial.run, rank=rank) for rank in range(gang.num_workers)
            ]
        return Running(
            trial_id=trial.id,
            experiment_id=experiment.id,
            run=trial.run,
            slots=trial.slots,
            gang=gang,
            logs=LogIntake(
                self._store,
                gang,
                trial_id=trial.id,
                positions=positions,
                cancel_patterns=LogPatterns(policy["pattern"] for policy in experiment.config["log_policies"]),
                clock=self._clock,
                max_bytes=self._max_log_bytes,
                used_bytes=trial.log_bytes,
            ),
            spool=self._gangs.spool(experiment, trial, gang),
            elastic=found.elastic,
        )

    def _find_gangs(self) -> None:
        """Attach to the gangs that a previous supervisor started, including those that have ended."""
        with self._store.reading() as session:
            rows = session.execute(
                select(TrialRow, ExperimentRow)
                .join(ExperimentRow, TrialRow.experiment_id == ExperimentRow.id)
                .where(TrialRow.state == "running")
            ).all()
        for trial, experiment in rows:
            if trial.id in self.running:
                continue
            found = self._gangs.attach(experiment, trial)
            if found is not None:
                self.running[trial.id] = self._watch(experiment, trial, found)
                continue
            # The supervisor was killed before the gang started: nothing was trained, so it does not count as a restart.
            never_started = Ending("stopped", stop_reason="preempted")
            with self._store.writing() as session:
                row = session.get_one(TrialRow, trial.id)
                end_run(session, row, never_started, now_s=self._clock.now_s(), is_shutting_down=True)
