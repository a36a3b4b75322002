"""What happened to a trial: when its runs began and ended and why, in the words of whoever decided it.

`note` is for everything that changes a trial's processes; it writes in the caller's transaction.
"""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from trek.client.view_models import TrialEvent
from trek.control import views
from trek.control.lookup import find_experiment, find_trial
from trek.control.store import Store
from trek.control.tables import TrialEventTable, TrialRow
from trek.control.trials.endings import Ending, Next

MAX_EVENTS = 1000
MAX_TEXT = 2000
_REASONS = {
    "searcher": "the searcher stopped it",
    "preempted": "it was asked to save and stop",
    "killed": "it was killed",
    "early_stopping": "it stopped early by its own rule",
    "user": "its code asked to stop",
}


def note(session: Session, trial: TrialRow, kind: str, text: str, *, now_s: float) -> None:
    """Remember that something happened to the trial's current run."""
    event = TrialEventTable(trial_id=trial.id, run=trial.run, time_s=now_s, kind=kind, text=text[:MAX_TEXT])
    session.add(event)


def note_end(session: Session, trial: TrialRow, ending: Ending, next_: Next, *, now_s: float) -> None:
    """Remember how a run ended, and what the trial does next."""
    kind = "completed" if next_ == "reached" else next_
    text = ending.message or _REASONS.get(ending.stop_reason, ending.stop_reason)
    note(session, trial, kind, text, now_s=now_s)


def history_of(store: Store, trial_id: int) -> list[TrialEvent]:
    """The last events of a trial, the oldest first."""
    with store.reading() as session:
        experiment = find_experiment(session, find_trial(session, trial_id).experiment_id)
        query = select(TrialEventTable).where(TrialEventTable.trial_id == trial_id)
        rows = session.scalars(query.order_by(TrialEventTable.id.desc()).limit(MAX_EVENTS)).all()[::-1]
        return [
            TrialEvent(
                id=row.id, run=row.run, time_s=row.time_s, kind=row.kind, text=views.shown_text(row.text, experiment)
            )
            for row in rows
        ]
