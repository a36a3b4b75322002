"""The record of an elastic trial's workers: who joined and left, and why, in the store and in the trial's log.

Every function changes or reads rows in the caller's transaction and touches nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from trek.control.tables import TrialRow, WorkerChangeTable
from trek.control.trials.ingest import take_lines
from trek.elastic.membership import Change

LOG_RANK = -1
"""Whose lines of the log are the control plane's own."""


def num_changes(session: Session, *, trial_id: int, run: int) -> int:
    """How many changes of a run are on record."""
    count = select(func.count()).where(WorkerChangeTable.trial_id == trial_id, WorkerChangeTable.run == run)
    return session.scalar(count) or 0


def record_changes(session: Session, trial: TrialRow, changes: Sequence[tuple[Change, int]], *, now_s: float) -> None:
    """Store changes of the trial's current run, each with how many workers there were when it was told."""
    before = num_changes(session, trial_id=trial.id, run=trial.run)
    rows = [
        _row(trial, change, number=number, num_workers=num_workers)
        for number, (change, num_workers) in enumerate(changes, start=before + 1)
    ]
    session.add_all(rows)
    lines = [(row.number, describe(row)) for row in rows]
    take_lines(session, trial, rank=LOG_RANK, lines=lines, now_s=now_s)


def all_changes(session: Session, trial_id: int) -> Sequence[WorkerChangeTable]:
    """What is on record of a trial, in its order."""
    query = select(WorkerChangeTable).where(WorkerChangeTable.trial_id == trial_id)
    return session.scalars(query.order_by(WorkerChangeTable.run, WorkerChangeTable.number)).all()


def describe(row: WorkerChangeTable) -> str:
    """One change as a line of the log."""
    who = f"worker {row.worker}" if row.worker is not None else "the job"
    return f"trek: {who} {row.text} ({row.num_workers} worker{'' if row.num_workers == 1 else 's'} now)"


def _row(trial: TrialRow, change: Change, *, number: int, num_workers: int) -> WorkerChangeTable:
    worker = change.member.partition("-")[0]
    return WorkerChangeTable(
        trial_id=trial.id,
        run=trial.run,
        number=number,
        time_s=change.at_s,
        generation=change.generation,
        worker=int(worker) if worker else None,
        text=change.text,
        num_workers=num_workers,
    )
