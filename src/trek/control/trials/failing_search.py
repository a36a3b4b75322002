"""Searches whose first trials all fail with the same error before any of them reports a metric.

The other trials would most likely fail in the same way. They are held back while the failed ones are retried; when no
retries are left, the search ends with the common error. Changes rows in the caller's transaction.
"""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from trek.control.tables import ExperimentRow, MetricTable, TrialRow

NUM_SAME_ERRORS = 3
"""Fewer failed trials may have failed because of their own hyperparameters."""
MAX_COMPARED = 100
"""How many failed trials are compared: an experiment may have thousands, and this is checked often."""


def common_error(session: Session, experiment_id: int) -> str:
    """The error that every failed trial shares; empty while few have failed, or if any trial made progress."""
    mine = TrialRow.experiment_id == experiment_id
    failed = select(TrialRow.error).where(mine, TrialRow.failure != "", TrialRow.failure != "rejected")
    errors = session.scalars(failed.order_by(TrialRow.id).limit(MAX_COMPARED)).all()
    if len(errors) < NUM_SAME_ERRORS or len(set(errors)) > 1:
        return ""
    reached_its_end = select(TrialRow.id).where(mine, TrialRow.state.in_(["completed", "paused"]))
    reported = select(MetricTable.trial_id).where(MetricTable.trial_id.in_(select(TrialRow.id).where(mine)))
    made_progress = (session.scalars(query.limit(1)).first() is not None for query in (reached_its_end, reported))
    return "" if any(made_progress) else errors[0]


def end_failing_search(session: Session, experiment: ExperimentRow, *, now_s: float) -> None:
    """End a search whose trials all fail with one error, once no started trial can be retried."""
    session.flush()
    may_retry = TrialRow.state.in_(["running", "queued"]) & (TrialRow.run > 0)
    mine = select(TrialRow).where(TrialRow.experiment_id == experiment.id)
    if session.scalars(mine.where(may_retry).limit(1)).first() is not None or not common_error(session, experiment.id):
        return
    for trial in session.scalars(mine.where(TrialRow.state == "queued")):
        trial.move("killed")
        trial.ended_s = now_s
    experiment.search_finished = True
