"""Connects the pure Searcher to the rows: tells it of events, applies its actions, and stores its snapshot."""

from __future__ import annotations

import math
from collections.abc import Callable

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from trek.client.models import ENDED, MetricPoint
from trek.control.checkpoints.starting_point import starting_path
from trek.control.experiments.parsed_config import parsed_config
from trek.control.tables import ExperimentRow, TrialRow
from trek.control.trials.trained_length import trained_length
from trek.search.base import Action, Create, Extend, Finish, Searcher, Stop
from trek.search.metric_pairs import comparable
from trek.search.searcher_registry import make_searcher

Event = Callable[[Searcher], list[Action]]


def load_searcher(experiment: ExperimentRow) -> Searcher:
    """The experiment's Searcher as it was after the last event."""
    config = parsed_config(experiment)
    searcher = make_searcher(
        config.searcher,
        hyperparameters=config.hyperparameters,
        seed=config.reproducibility.experiment_seed,
    )
    if experiment.snapshot:
        searcher.restore(experiment.snapshot)
    return searcher


def advance(session: Session, experiment: ExperimentRow, event: Event, *, now_s: float) -> Searcher:
    """Tell the Searcher of an event, apply its actions and store its snapshot, all in `session`'s transaction."""
    searcher = load_searcher(experiment)
    for action in event(searcher):
        _apply(session, experiment, action, now_s=now_s)
    experiment.snapshot = searcher.snapshot()
    experiment.expected_length = sum(length * count for length, count in searcher.expected().items())
    session.flush()
    return searcher


def report_validation(
    session: Session, experiment: ExperimentRow, trial: TrialRow, point: MetricPoint, *, now_s: float
) -> None:
    """Take in a validation that was not seen before: update the best metrics, then tell the Searcher."""
    config = parsed_config(experiment)
    if config.searcher.metric not in point.metrics:
        return
    value = point.metrics[config.searcher.metric]
    sign = 1 if config.searcher.smaller_is_better else -1
    is_finite = value is not None and math.isfinite(value)
    if value is not None and is_finite:
        if trial.best_metric is None or sign * value < sign * trial.best_metric:
            trial.best_metric = value
        if experiment.best_metric is None or sign * value < sign * experiment.best_metric:
            experiment.best_metric, experiment.best_trial = value, trial.id
    length = trained_length(config, trial.hparams, batches=point.batches, epoch=point.epoch)
    metric = comparable(value, smaller_is_better=config.searcher.smaller_is_better)
    advance(session, experiment, lambda searcher: searcher.report(trial.key, length=length, metric=metric), now_s=now_s)


def conclude(session: Session, experiment: ExperimentRow, *, now_s: float) -> None:
    """End the experiment once none of its trials can run any more."""
    trials = session.scalars(select(TrialRow).where(TrialRow.experiment_id == experiment.id)).all()
    if experiment.state in ENDED or any(trial.state not in ENDED for trial in trials):
        return
    if experiment.wanted == "kill":
        experiment.move("killed")
    elif not experiment.search_finished:
        return
    elif any(trial.state == "completed" for trial in trials):
        experiment.move("completed")
        experiment.progress = 1.0
    else:
        experiment.move("errored")
        failed = [trial for trial in trials if trial.failure not in ("", "rejected")]
        worst = next(iter(failed), trials[-1])
        experiment.error, experiment.failure = worst.error, worst.failure
    experiment.ended_s = now_s


def update_progress(session: Session, experiment: ExperimentRow) -> None:
    """Set the trained length over the expected length; below 1 until the experiment has ended."""
    done = session.scalar(
        select(func.sum(TrialRow.length * TrialRow.progress)).where(TrialRow.experiment_id == experiment.id)
    )
    experiment.progress = min((done or 0.0) / max(experiment.expected_length, 1), 0.999)


def _apply(session: Session, experiment: ExperimentRow, action: Action, *, now_s: float) -> None:
    if isinstance(action, Finish):
        experiment.search_finished = True
    elif isinstance(action, Create):
        start = starting_path(session, experiment) if action.parent is None else None
        session.add(_new_trial(experiment, action, start=start, now_s=now_s))
    else:
        session.flush()
        trial = session.scalars(
            select(TrialRow).where(TrialRow.experiment_id == experiment.id, TrialRow.key == action.key)
        ).one()
        if isinstance(action, Extend):
            _extend(trial, action)
        elif isinstance(action, Stop):
            _stop(trial, now_s=now_s)


def _new_trial(experiment: ExperimentRow, action: Create, *, start: str | None, now_s: float) -> TrialRow:
    return TrialRow(
        experiment_id=experiment.id,
        key=action.key,
        parent_key=action.parent,
        hparams=dict(action.hparams),
        seed=action.seed,
        length=action.length,
        start_checkpoint=start,
        created_s=now_s,
    )


def _extend(trial: TrialRow, action: Extend) -> None:
    trial.length = action.length
    trial.progress = 0.0
    if trial.state != "running":
        trial.move("queued")
        trial.wanted = "run"
        trial.ended_s = None


def _stop(trial: TrialRow, *, now_s: float) -> None:
    if trial.state == "running":
        if trial.wanted != "kill":
            trial.wanted = "stop"
    elif trial.state not in ENDED:
        trial.move("completed")
        trial.ended_s = now_s
