"""Searches that get nowhere: their first trials all fail alike, and none has ever reported a metric.

What fails so fails for the others too: trials that have not been started are held back while those that failed are
tried again, and when these are at their end the search is, with their error. Changes rows in the caller's transaction.
"""

from __future__ import annotations

import time

from sqlalchemy import select
from sqlalchemy.orm import Session

from trek.control.tables import ExperimentRow, MetricTable, TrialRow

NUM_ALIKE = 3
"""So many trials with one and the same error are no chance of their hyperparameters."""
MAX_COMPARED = 100
"""Failed trials that are looked at: an experiment may have very many, and it is asked of them often."""


def common_error(session: Session, experiment_id: int) -> str:
    """The one error of every trial that failed so far; empty while there are few, or any got on at all."""
    mine = TrialRow.experiment_id == experiment_id
    failed = select(TrialRow.error).where(mine, TrialRow.failure != "", TrialRow.failure != "rejected")
    errors = session.scalars(failed.order_by(TrialRow.id).limit(MAX_COMPARED)).all()
    if len(errors) < NUM_ALIKE or len(set(errors)) > 1:
        return ""
    reached_its_end = select(TrialRow.id).where(mine, TrialRow.state.in_(["completed", "paused"]))
    reported = select(MetricTable.trial_id).where(MetricTable.trial_id.in_(select(TrialRow.id).where(mine)))
    got_on = (session.scalars(query.limit(1)).first() is not None for query in (reached_its_end, reported))
    return "" if any(got_on) else errors[0]


def give_up(session: Session, experiment: ExperimentRow) -> None:
    """End a search that gets nowhere, once nothing that was started can go on."""
    session.flush()
    going_on = TrialRow.state.in_(["running", "queued"]) & (TrialRow.run > 0)
    mine = select(TrialRow).where(TrialRow.experiment_id == experiment.id)
    if session.scalars(mine.where(going_on).limit(1)).first() is not None or not common_error(session, experiment.id):
        return
    for trial in session.scalars(mine.where(TrialRow.state == "queued")):
        trial.move("killed")
        trial.ended_s = time.time()
    experiment.search_finished = True
