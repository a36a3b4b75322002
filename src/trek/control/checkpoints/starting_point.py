"""The checkpoint that the trials of an experiment start from."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from trek.control.checkpoints.best_checkpoint import best_checkpoint, best_of_trial
from trek.control.lookup import find_checkpoint, find_experiment, find_trial
from trek.control.tables import CheckpointTable, ExperimentRow, MetricTable, TrialRow
from trek.control.trials.trained_length import trained_length
from trek.errors import InputError
from trek.experiments.config import ExperimentConfig


def find_starting_point(session: Session, config: ExperimentConfig) -> str | None:
    """The uuid of the checkpoint that `start_from` names; InputError or NotFound if it cannot be started from."""
    if config.start_from is None:
        return None
    found = find_checkpoint(session, _named(session, config.start_from))
    if found.is_deleted:
        raise InputError(f"start_from: the files of checkpoint {found.uuid} were deleted. Choose another one.")
    _check_length(session, found, config)
    return found.uuid


def _named(session: Session, start_from: str) -> str:
    kind, _, number = start_from.rpartition(":")
    if kind == "experiment":
        return _best_of_experiment(session, int(number))
    return _best_of_trial(session, int(number)) if kind == "trial" else start_from


def _check_length(session: Session, start: CheckpointTable, config: ExperimentConfig) -> None:
    """Refuse a length that the checkpoint has reached: nothing would be trained."""
    length = config.searcher.max_length
    epoch = session.scalar(
        select(MetricTable.epoch)
        .where(MetricTable.trial_id == start.trial_id, MetricTable.batches == start.batches)
        .limit(1)
    )
    hparams = session.get_one(TrialRow, start.trial_id).hparams
    if length is None or (length.unit == "records" and "global_batch_size" not in hparams):
        return
    reached = trained_length(config, hparams, batches=start.batches, epoch=epoch or 0.0)
    if reached >= length.count:
        raise InputError(
            f"checkpoint {start.uuid} is already at {reached:g} {length.unit}, and searcher.max_length is "
            f"{length.count} {length.unit}. Increase searcher.max_length, or start without a checkpoint."
        )


def _best_of_experiment(session: Session, experiment_id: int) -> str:
    best = best_checkpoint(session, find_experiment(session, experiment_id))
    if best is None:
        raise InputError(f"experiment {experiment_id} has no checkpoint to continue from. Fork it instead.")
    return best[0].uuid


def _best_of_trial(session: Session, trial_id: int) -> str:
    trial = find_trial(session, trial_id)
    best = best_of_trial(session, find_experiment(session, trial.experiment_id), trial.id)
    if best is None:
        raise InputError(f"start_from: trial {trial.id} has no checkpoint. Choose another one.")
    return best[0]


def starting_path(session: Session, experiment: ExperimentRow) -> str | None:
    """Where the checkpoint lies that new trials of the experiment start from; None if they start from scratch."""
    uuid = experiment.config.get("start_from")
    return session.scalar(select(CheckpointTable.path).where(CheckpointTable.uuid == uuid)) if uuid else None
