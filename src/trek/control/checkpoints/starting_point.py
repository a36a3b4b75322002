"""The checkpoint that the trials of an experiment start from."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from trek.control.checkpoints.best_checkpoint import best_checkpoint, best_of_trial
from trek.control.lookup import find_checkpoint, find_experiment, find_trial
from trek.control.tables import CheckpointTable, ExperimentRow
from trek.errors import InputError


def find_starting_point(session: Session, start_from: str) -> str:
    """The uuid of the checkpoint that `start_from` names; InputError or NotFound if it cannot be started from."""
    kind, _, number = start_from.rpartition(":")
    if kind == "experiment":
        return _best_of_experiment(session, int(number))
    if kind == "trial":
        return _best_of_trial(session, int(number))
    found = find_checkpoint(session, start_from)
    if found.is_deleted:
        raise InputError(f"start_from: the files of checkpoint {found.uuid} were deleted. Choose another one.")
    return found.uuid


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
