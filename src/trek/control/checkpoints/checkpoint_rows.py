"""The rows of a trial's checkpoints: stored when they are reported, and which of them is the newest."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import PurePosixPath

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from trek.client.models import CheckpointReport
from trek.control.tables import CheckpointTable, TrialRow


def take_checkpoints(
    session: Session, trial: TrialRow, reports: Sequence[CheckpointReport], *, gone: Collection[str] = ()
) -> None:
    """Store rows of new checkpoints, mark those that are `gone` as deleted, and point the trial at its newest."""
    for report in reports:
        _take(session, trial, report)
    if gone:
        own = CheckpointTable.uuid.in_(gone), CheckpointTable.trial_id == trial.id
        session.execute(update(CheckpointTable).where(*own).values(is_deleted=True))
    if reports or gone:
        trial.checkpoint = newest_checkpoint(session, trial.id)


def newest_checkpoint(session: Session, trial_id: int) -> str | None:
    """The uuid of the trial's newest checkpoint that is still stored."""
    session.flush()
    newest = (
        select(CheckpointTable.uuid)
        .where(CheckpointTable.trial_id == trial_id, ~CheckpointTable.is_deleted)
        .order_by(CheckpointTable.batches.desc(), CheckpointTable.time_s.desc())
    )
    return session.scalars(newest.limit(1)).first()


def stored_checkpoints(session: Session, trial_id: int) -> list[str]:
    """The names, in the trial's storage, of its checkpoints that are still stored."""
    own = select(CheckpointTable.path).where(CheckpointTable.trial_id == trial_id, ~CheckpointTable.is_deleted)
    return sorted(PurePosixPath(path).name for path in session.scalars(own))


def _take(session: Session, trial: TrialRow, report: CheckpointReport) -> None:
    """A checkpoint that is known stays deleted if it was, and its files where they are."""
    known = session.get(CheckpointTable, report.uuid)
    if known is None:
        session.add(CheckpointTable(trial_id=trial.id, is_deleted=False, **report.model_dump()))
        session.flush()
    elif known.trial_id == trial.id:
        known.batches, known.metrics, known.time_s = report.batches, dict(report.metrics), report.time_s
