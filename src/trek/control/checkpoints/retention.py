"""Which checkpoints are kept: decided by the control plane alone, while an experiment runs and when it has ended.

A checkpoint that is a version of a model, or that a trial which has not ended starts from, is never removed.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from trek.client.models import ENDED
from trek.control.checkpoints.best_checkpoint import Candidate, stored_candidates
from trek.control.checkpoints.checkpoint_rows import newest_checkpoint
from trek.control.checkpoints.starting_point import starting_path
from trek.control.experiments.parsed_config import parsed_config
from trek.control.tables import CheckpointTable, ExperimentRow, ModelVersionRow, TrialRow
from trek.experiments.config import CheckpointStorage


def expired(candidates: Sequence[Candidate], storage: CheckpointStorage, *, has_ended: bool = True) -> set[str]:
    """Which checkpoints of an experiment the policy does not keep. Pure.

    Until the experiment has ended, every trial keeps its newest: it resumes from it, and another may start from it.
    """
    by_score = sorted((c for c in candidates if c.score is not None), key=lambda c: (c.score, c.batches))
    keep = {c.uuid for c in by_score[: storage.save_experiment_best]}
    keep |= {c.uuid for c in candidates if storage.save_trial_every and c.batches % storage.save_trial_every == 0}
    num_latest = storage.save_trial_latest if has_ended else max(storage.save_trial_latest, 1)
    for trial_id in {c.trial_id for c in candidates}:
        newest = sorted((c for c in candidates if c.trial_id == trial_id), key=lambda c: (-c.batches, -c.time_s))
        keep |= {c.uuid for c in newest[:num_latest]}
        keep |= {c.uuid for c in [c for c in by_score if c.trial_id == trial_id][: storage.save_trial_best]}
    return {c.uuid for c in candidates} - keep


def expire_checkpoints(session: Session, experiment: ExperimentRow) -> None:
    """Mark the checkpoints that the policy does not keep as deleted; their files are removed later."""
    session.flush()
    stored = stored_candidates(session, experiment)
    storage = parsed_config(experiment).checkpoint_storage
    gone = expired([candidate for _, candidate in stored], storage, has_ended=experiment.state in ENDED)
    needed = needed_paths(session) if gone else set()
    removed = [row for row, _ in stored if row.uuid in gone and row.path not in needed]
    for row in removed:
        row.is_deleted = row.awaits_removal = True
    for trial_id in {row.trial_id for row in removed}:
        session.get_one(TrialRow, trial_id).checkpoint = newest_checkpoint(session, trial_id)


def needed_paths(session: Session) -> set[str]:
    """Folders of checkpoints that are versions of a model, or that a trial which has not ended starts from."""
    waiting = select(TrialRow.start_checkpoint).where(
        TrialRow.state.not_in(ENDED), TrialRow.start_checkpoint.is_not(None)
    )
    registered = select(CheckpointTable.path).join(ModelVersionRow, ModelVersionRow.checkpoint == CheckpointTable.uuid)
    running = session.scalars(select(ExperimentRow).where(ExperimentRow.state.not_in(ENDED)))
    to_start = [starting_path(session, experiment) for experiment in running]  # also trials that are yet to be made
    paths = [*session.scalars(waiting), *session.scalars(registered), *to_start]
    return {path for path in paths if path is not None}
