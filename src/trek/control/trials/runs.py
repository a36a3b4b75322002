"""The life cycle of a trial's runs in the store: what changes for trial and experiment when one begins or ends.

Every function changes rows in the caller's transaction and touches nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from trek.client.models import ENDED
from trek.control.experiments.parsed_config import parsed_config
from trek.control.tables import CheckpointTable, ExperimentRow, TrialRow
from trek.control.trials.endings import Ending, Next, Standing, decide, delay_after, failure_of
from trek.control.trials.failing_search import common_error, end_failing_search
from trek.control.trials.scheduler import DEFAULT_PRIORITY, Occupied, Request
from trek.control.trials.searching import advance, conclude
from trek.control.trials.slot_ranges import is_elastic, slot_range
from trek.control.trials.trial_history import note, note_end


def requests(session: Session, *, now_s: float) -> list[Request]:
    """Trials that want slots, of experiments that may run; not those that wait before a retry."""
    is_due = TrialRow.not_before_s.is_(None) | (TrialRow.not_before_s <= now_s)
    rows = session.execute(
        select(TrialRow, ExperimentRow)
        .join(ExperimentRow, TrialRow.experiment_id == ExperimentRow.id)
        .where(TrialRow.state == "queued", ExperimentRow.wanted == "run", is_due)
        .order_by(TrialRow.id)
    ).all()
    return [_request(trial, experiment, now_s=now_s) for trial, experiment in rows]


def begin_run(session: Session, trial: TrialRow, *, slots: Sequence[int], now_s: float) -> None:
    """The trial gets `slots` and its next run begins."""
    trial.move("running")
    trial.run += 1
    trial.slots = list(slots)
    trial.waiting = ""
    trial.num_workers = 0 if is_elastic(session.get_one(ExperimentRow, trial.experiment_id)) else None
    trial.not_before_s = None
    trial.start_batches = newest_checkpoint_batches(session, trial.id)
    trial.started_s = trial.started_s or now_s
    experiment = session.get_one(ExperimentRow, trial.experiment_id)
    if experiment.state != "running":
        experiment.move("running")
    experiment.started_s = experiment.started_s or now_s
    place = f"from {trial.start_batches} batches" if trial.start_batches else "from the beginning"
    processes = f"{len(trial.slots)} process{'' if len(trial.slots) == 1 else 'es'}"
    note(session, trial, "started", f"with {processes}, {place}", now_s=now_s)


def end_run(session: Session, trial: TrialRow, ending: Ending, *, now_s: float, is_shutting_down: bool = False) -> Next:
    """The gang has ended: move the trial, tell the Searcher, and end the experiment if this was its last trial."""
    experiment = session.get_one(ExperimentRow, trial.experiment_id)
    next_ = decide(ending, _standing(session, trial, experiment))
    if is_shutting_down and next_ == "restart":
        next_ = "queued"
    trial.slots = []
    note_end(session, trial, ending, next_, now_s=now_s)
    trial.num_workers = None
    if next_ in ("errored", "restart", "rejected"):
        trial.error, trial.traceback, trial.failure = ending.message, ending.traceback, failure_of(ending)
    if next_ == "restart":
        _delay_restart(trial, ending, max_restarts=parsed_config(experiment).max_restarts, now_s=now_s)
        trial.restarts += 1
    if ending.kind == "done":
        trial.progress = 1.0
    _move(session, experiment, trial, next_, now_s=now_s)
    if trial.state in ENDED:
        trial.ended_s = now_s
    if trial.state == "completed":
        trial.error = trial.traceback = trial.failure = ""
    if next_ == "errored":
        end_failing_search(session, experiment, now_s=now_s)
    settle(session, experiment, now_s=now_s)
    return next_


def held_back(session: Session, queue: Sequence[Request]) -> dict[int, str]:
    """Queued trials that wait while others, which all failed with one error, are retried; and why they wait."""
    held: dict[int, str] = {}
    for experiment_id in {request.experiment_id for request in queue}:
        if error := common_error(session, experiment_id):
            fresh = select(TrialRow.id).where(TrialRow.experiment_id == experiment_id, TrialRow.run == 0)
            held |= dict.fromkeys(
                session.scalars(fresh), f"waits for retries of earlier trials, which all failed: {error}"
            )
    return {request.trial_id: held[request.trial_id] for request in queue if request.trial_id in held}


def settle(session: Session, experiment: ExperimentRow, *, now_s: float) -> None:
    """Update the experiment's state to match those of its trials."""
    session.flush()
    conclude(session, experiment, now_s=now_s)
    if experiment.wanted == "pause" and experiment.state in ("queued", "running"):
        running = select(func.count()).where(TrialRow.experiment_id == experiment.id, TrialRow.state == "running")
        if not session.scalar(running):
            experiment.move("paused")


def request_change(session: Session, experiment: ExperimentRow, wanted: str, *, now_s: float) -> None:
    """Pass the user's request (run, pause or kill) on to the trials; the supervisor informs running ones."""
    experiment.wanted = wanted
    if wanted == "run" and experiment.state == "paused":
        experiment.move("queued")
    for trial in session.scalars(select(TrialRow).where(TrialRow.experiment_id == experiment.id)):
        if trial.state == "running" and trial.wanted != "kill":
            trial.wanted = "stop" if trial.wanted == "stop" and wanted != "kill" else wanted
        elif trial.state not in ENDED and wanted == "kill":
            trial.move("killed")
            trial.ended_s = now_s
        elif trial.state not in ENDED:
            trial.wanted = "run"
            trial.not_before_s = None  # whoever activates it wants it retried now
    settle(session, experiment, now_s=now_s)


def kill_trial(session: Session, trial: TrialRow, *, now_s: float) -> None:
    """End one trial but not its experiment: at once if it is queued, through its supervisor if it is running."""
    if trial.state == "running":
        trial.wanted = "kill"
        return
    experiment = session.get_one(ExperimentRow, trial.experiment_id)
    _move(session, experiment, trial, "killed", now_s=now_s)
    trial.ended_s = now_s
    settle(session, experiment, now_s=now_s)


def newest_checkpoint_batches(session: Session, trial_id: int) -> int:
    """Batches of the trial's newest checkpoint that is still stored; 0 if there is none."""
    newest = select(func.max(CheckpointTable.batches)).where(
        CheckpointTable.trial_id == trial_id, ~CheckpointTable.is_deleted
    )
    return session.scalar(newest) or 0


def occupied(trial: TrialRow, experiment: ExperimentRow, *, slots: int) -> Occupied:
    """A running elastic trial, which may give slots back and get more."""
    least, most = slot_range(trial, experiment)
    resources = experiment.config["resources"]
    return Occupied(
        trial_id=trial.id,
        experiment_id=experiment.id,
        slots=slots,
        least=least,
        most=most,
        priority=resources.get("priority") or DEFAULT_PRIORITY,
        weight=resources["weight"],
        max_slots=resources.get("max_slots"),
    )


def _request(trial: TrialRow, experiment: ExperimentRow, *, now_s: float) -> Request:
    resources = experiment.config["resources"]
    least, most = slot_range(trial, experiment)
    return Request(
        trial_id=trial.id,
        experiment_id=experiment.id,
        slots=least,
        most=most,
        priority=resources.get("priority") or DEFAULT_PRIORITY,
        weight=resources["weight"],
        max_slots=resources.get("max_slots"),
        max_trials=experiment.config["searcher"].get("max_concurrent_trials", 0),
        waited_s=now_s - trial.created_s,
    )


def _standing(session: Session, trial: TrialRow, experiment: ExperimentRow) -> Standing:
    return Standing(
        wanted=trial.wanted,
        restarts=trial.restarts,
        max_restarts=parsed_config(experiment).max_restarts,
        has_new_checkpoint=newest_checkpoint_batches(session, trial.id) > trial.start_batches,
        retries_cancelled=trial.retries_cancelled,
    )


def _delay_restart(trial: TrialRow, ending: Ending, *, max_restarts: int, now_s: float) -> None:
    delay_s = delay_after(ending, restarts=trial.restarts)
    if delay_s:
        trial.not_before_s = now_s + delay_s
        trial.waiting = f"waits {delay_s:g} s before restart {trial.restarts + 1} of {max_restarts}: {ending.message}"


def _move(session: Session, experiment: ExperimentRow, trial: TrialRow, next_: Next, *, now_s: float) -> None:
    if next_ == "killed":
        trial.move("killed")
        if experiment.wanted != "kill":
            advance(session, experiment, lambda searcher: searcher.failed(trial.key), now_s=now_s)
    elif next_ == "reached":
        trial.move("paused")  # until the Searcher extends or closes it
        searcher = advance(session, experiment, lambda searcher: searcher.reached(trial.key), now_s=now_s)
        if trial.state == "paused" and trial.key in searcher.trials.ended:
            trial.move("completed")
    elif next_ == "completed":
        trial.move("completed")
        advance(session, experiment, lambda searcher: searcher.reached(trial.key), now_s=now_s)
    elif next_ == "paused":
        # The experiment is what is paused; the trial waits in the queue for it to be activated.
        trial.move("queued")
        trial.wanted = "run"
    elif next_ in ("queued", "restart"):
        trial.move("queued")
        trial.wanted = "run"
    elif next_ == "rejected":
        trial.move("errored")
        advance(session, experiment, lambda searcher: searcher.rejected(trial.key), now_s=now_s)
    else:
        trial.move("errored")
        advance(session, experiment, lambda searcher: searcher.failed(trial.key), now_s=now_s)
