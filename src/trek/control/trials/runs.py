"""The life of a trial's runs in the store: one begins, one ends, and what follows for trial and experiment.

Every function changes rows in the caller's transaction and touches nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from trek.client.models import ENDED
from trek.control.tables import CheckpointTable, ExperimentRow, TrialRow
from trek.control.trials.endings import Ending, Next, Standing, decide, failure_of, pause_after
from trek.control.trials.failing_search import common_error, give_up
from trek.control.trials.scheduler import DEFAULT_PRIORITY, Request
from trek.control.trials.searching import advance, conclude
from trek.experiments.config import ExperimentConfig


def requests(session: Session) -> list[Request]:
    """Trials that want slots, of experiments that may run; not those that pause after an error from outside."""
    is_over = TrialRow.not_before_s.is_(None) | (TrialRow.not_before_s <= time.time())
    rows = session.execute(
        select(TrialRow, ExperimentRow)
        .join(ExperimentRow, TrialRow.experiment_id == ExperimentRow.id)
        .where(TrialRow.state == "queued", ExperimentRow.wanted == "run", is_over)
        .order_by(TrialRow.id)
    ).all()
    return [_request(trial, experiment) for trial, experiment in rows]


def begin_run(session: Session, trial: TrialRow, *, slots: Sequence[int]) -> None:
    """The trial gets `slots` and its next run begins."""
    trial.move("running")
    trial.run += 1
    trial.slots = list(slots)
    trial.waiting = ""
    trial.not_before_s = None
    trial.start_batches = newest_checkpoint_batches(session, trial.id)
    trial.started_s = trial.started_s or time.time()
    experiment = session.get_one(ExperimentRow, trial.experiment_id)
    if experiment.state != "running":
        experiment.move("running")
    experiment.started_s = experiment.started_s or time.time()


def end_run(session: Session, trial: TrialRow, ending: Ending, *, is_shutting_down: bool = False) -> Next:
    """The gang is gone: move the trial, tell the Searcher, and end the experiment if this was its last."""
    experiment = session.get_one(ExperimentRow, trial.experiment_id)
    next_ = decide(ending, _standing(session, trial, experiment))
    if is_shutting_down and next_ == "restart":
        next_ = "queued"
    trial.slots = []
    if next_ in ("errored", "restart", "rejected"):
        trial.error, trial.traceback, trial.failure = ending.message, ending.traceback, failure_of(ending)
    if next_ == "restart":
        _pause(trial, ending, max_restarts=ExperimentConfig.parse(experiment.config).max_restarts)
        trial.restarts += 1
    _move(session, experiment, trial, next_)
    if trial.state in ENDED:
        trial.ended_s = time.time()
    if trial.state == "completed":
        trial.error = trial.traceback = trial.failure = ""
        trial.progress = 1.0
    if next_ == "errored":
        give_up(session, experiment)
    settle(session, experiment)
    return next_


def held_back(session: Session, queue: Sequence[Request]) -> dict[int, str]:
    """Those of the queue that wait until others, which all failed alike, have been tried again; and why."""
    held: dict[int, str] = {}
    for experiment_id in {request.experiment_id for request in queue}:
        if error := common_error(session, experiment_id):
            fresh = select(TrialRow.id).where(TrialRow.experiment_id == experiment_id, TrialRow.run == 0)
            held |= dict.fromkeys(session.scalars(fresh), f"waits for the trials before it, which all failed: {error}")
    return {request.trial_id: held[request.trial_id] for request in queue if request.trial_id in held}


def settle(session: Session, experiment: ExperimentRow) -> None:
    """Bring the experiment's own state after that of its trials."""
    session.flush()
    conclude(session, experiment)
    if experiment.wanted == "pause" and experiment.state in ("queued", "running"):
        running = select(func.count()).where(TrialRow.experiment_id == experiment.id, TrialRow.state == "running")
        if not session.scalar(running):
            experiment.move("paused")


def ask(session: Session, experiment: ExperimentRow, wanted: str) -> None:
    """Pass the user's wish (run, pause, kill) on to the trials; those that run are told by their supervisor."""
    experiment.wanted = wanted
    if wanted == "run" and experiment.state == "paused":
        experiment.move("queued")
    for trial in session.scalars(select(TrialRow).where(TrialRow.experiment_id == experiment.id)):
        if trial.state == "running" and trial.wanted != "kill":
            trial.wanted = "stop" if trial.wanted == "stop" and wanted != "kill" else wanted
        elif trial.state not in ENDED and wanted == "kill":
            trial.move("killed")
            trial.ended_s = time.time()
        elif trial.state not in ENDED:
            trial.wanted = "run"
            trial.not_before_s = None  # who asks wants to see it tried
    settle(session, experiment)


def kill_trial(session: Session, trial: TrialRow) -> None:
    """End one trial of an experiment that goes on: at once where it waits, through its supervisor where it runs."""
    if trial.state == "running":
        trial.wanted = "kill"
        return
    experiment = session.get_one(ExperimentRow, trial.experiment_id)
    _move(session, experiment, trial, "killed")
    trial.ended_s = time.time()
    settle(session, experiment)


def newest_checkpoint_batches(session: Session, trial_id: int) -> int:
    """Batches of the trial's newest checkpoint that is still there; 0 without one."""
    newest = select(func.max(CheckpointTable.batches)).where(
        CheckpointTable.trial_id == trial_id, ~CheckpointTable.is_deleted
    )
    return session.scalar(newest) or 0


def slots_of(trial: TrialRow, experiment: ExperimentRow) -> int:
    """How many slots the trial is to have when it runs next."""
    return trial.num_slots or int(experiment.config["resources"]["slots_per_trial"])


def _request(trial: TrialRow, experiment: ExperimentRow) -> Request:
    resources = experiment.config["resources"]
    return Request(
        trial_id=trial.id,
        experiment_id=experiment.id,
        slots=slots_of(trial, experiment),
        priority=resources.get("priority") or DEFAULT_PRIORITY,
        weight=resources["weight"],
        max_slots=resources.get("max_slots"),
        max_trials=experiment.config["searcher"].get("max_concurrent_trials", 0),
        waited_s=time.time() - trial.created_s,
    )


def _standing(session: Session, trial: TrialRow, experiment: ExperimentRow) -> Standing:
    return Standing(
        wanted=trial.wanted,
        restarts=trial.restarts,
        max_restarts=ExperimentConfig.parse(experiment.config).max_restarts,
        has_new_checkpoint=newest_checkpoint_batches(session, trial.id) > trial.start_batches,
        retries_cancelled=trial.retries_cancelled,
    )


def _pause(trial: TrialRow, ending: Ending, *, max_restarts: int) -> None:
    pause_s = pause_after(ending, restarts=trial.restarts)
    if pause_s:
        trial.not_before_s = time.time() + pause_s
        trial.waiting = f"pauses {pause_s:g} s before restart {trial.restarts + 1} of {max_restarts}: {ending.message}"


def _move(session: Session, experiment: ExperimentRow, trial: TrialRow, next_: Next) -> None:
    if next_ == "killed":
        trial.move("killed")
        if experiment.wanted != "kill":
            advance(session, experiment, lambda searcher: searcher.failed(trial.key))
    elif next_ == "reached":
        trial.move("paused")  # until the Searcher extends or closes it
        trial.progress = 1.0
        searcher = advance(session, experiment, lambda searcher: searcher.reached(trial.key))
        if trial.state == "paused" and trial.key in searcher.trials.ended:
            trial.move("completed")
    elif next_ == "completed":
        trial.move("completed")
        advance(session, experiment, lambda searcher: searcher.reached(trial.key))
    elif next_ == "paused":
        # The experiment is what is paused; the trial waits in the queue for it to be activated.
        trial.move("queued")
        trial.wanted = "run"
    elif next_ in ("queued", "restart"):
        trial.move("queued")
        trial.wanted = "run"
    elif next_ == "rejected":
        trial.move("errored")
        advance(session, experiment, lambda searcher: searcher.rejected(trial.key))
    else:
        trial.move("errored")
        advance(session, experiment, lambda searcher: searcher.failed(trial.key))
