"""Finds rows by the ids and names that users give; NotFound where there is none."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from trek.control.tables import CheckpointTable, ExperimentRow, ModelRow, TemplateRow, TrialRow
from trek.errors import NotFound, RunEnded


def find_experiment(session: Session, experiment_id: int) -> ExperimentRow:
    """The experiment with this id."""
    row = session.get(ExperimentRow, experiment_id)
    if row is None:
        raise NotFound(f"experiment {experiment_id} does not exist. See `trek experiment list`.")
    return row


def find_trial(session: Session, trial_id: int) -> TrialRow:
    """The trial with this id."""
    row = session.get(TrialRow, trial_id)
    if row is None:
        raise NotFound(f"trial {trial_id} does not exist. See `trek experiment describe`.")
    return row


def find_running(session: Session, trial_id: int, *, run: int) -> TrialRow:
    """The trial with this id; RunEnded unless `run` is its current run, and is running."""
    trial = find_trial(session, trial_id)
    if trial.run != run or trial.state != "running":
        raise RunEnded(f"run {run} of trial {trial_id} has ended; the trial is {trial.state}.")
    return trial


def find_checkpoint(session: Session, uuid: str) -> CheckpointTable:
    """The checkpoint whose uuid is, or begins with, `uuid`; it must be the only one."""
    found = session.scalars(
        select(CheckpointTable).where(CheckpointTable.uuid.startswith(uuid, autoescape=True)).limit(2)
    ).all()
    if not found:
        raise NotFound(f"checkpoint {uuid!r} does not exist. See `trek checkpoint list`.")
    if len(found) > 1:
        raise NotFound(f"checkpoint {uuid!r} is ambiguous: several uuids begin with it. Give more characters.")
    return found[0]


def find_model(session: Session, name: str) -> ModelRow:
    """The registered model with this name."""
    row = session.scalar(select(ModelRow).where(ModelRow.name == name))
    if row is None:
        raise NotFound(f"the model {name!r} does not exist. See `trek model list`, or add it with `trek model create`.")
    return row


def find_template(session: Session, name: str) -> TemplateRow:
    """The template with this name."""
    row = session.get(TemplateRow, name)
    if row is None:
        raise NotFound(f"the template {name!r} does not exist. See `trek template list`.")
    return row
