"""Rows by the ids people give, or one sentence about what is not there."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from trek.control.tables import CheckpointTable, ExperimentRow, TrialRow
from trek.errors import NotFound


def find_experiment(session: Session, experiment_id: int) -> ExperimentRow:
    """The experiment."""
    row = session.get(ExperimentRow, experiment_id)
    if row is None:
        raise NotFound(f"experiment {experiment_id} does not exist. See `trek experiment list`.")
    return row


def find_trial(session: Session, trial_id: int) -> TrialRow:
    """The trial."""
    row = session.get(TrialRow, trial_id)
    if row is None:
        raise NotFound(f"trial {trial_id} does not exist. See `trek experiment describe`.")
    return row


def find_checkpoint(session: Session, uuid: str) -> CheckpointTable:
    """The checkpoint; `uuid` may be shortened as long as it names one."""
    found = session.scalars(
        select(CheckpointTable).where(CheckpointTable.uuid.startswith(uuid, autoescape=True)).limit(2)
    ).all()
    if len(found) != 1:
        problem = "names more than one checkpoint. Give more of it" if found else "does not exist"
        raise NotFound(f"checkpoint {uuid!r} {problem}.")
    return found[0]
