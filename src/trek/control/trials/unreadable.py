"""Experiments whose stored config can no longer be read, such as one that a newer version refuses: they are ended.

Otherwise each of their trials would be started, and fail, again and again. Changes rows in the caller's transaction.
"""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from trek.client.models import ENDED
from trek.control.experiments.parsed_config import parsed_config
from trek.control.tables import ExperimentRow, TrialRow
from trek.errors import ConfigError


def end_unreadable(session: Session, *, now_s: float) -> list[int]:
    """End the experiments that have not ended and whose config cannot be read; returns their ids."""
    found = session.scalars(select(ExperimentRow).where(ExperimentRow.state.not_in(ENDED))).all()
    return [one.id for one in found if _end_if_unreadable(session, one, now_s=now_s)]


def _end_if_unreadable(session: Session, experiment: ExperimentRow, *, now_s: float) -> bool:
    try:
        parsed_config(experiment)
    except ConfigError as error:
        problem = f"its stored config is not valid: {error}"
    else:
        return False
    for trial in session.scalars(select(TrialRow).where(TrialRow.experiment_id == experiment.id)):
        if trial.state not in ENDED:
            trial.move("errored")
            trial.error, trial.failure, trial.ended_s, trial.slots = problem, "input", now_s, []
    experiment.move("errored")
    experiment.error, experiment.failure, experiment.ended_s = problem, "input", now_s
    return True
