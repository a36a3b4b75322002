"""Removal of what is no longer needed: checkpoints by the keep policy, logs and metrics by age, whole experiments.

A checkpoint that a running or queued trial starts from, or that is a version of a model, is never removed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from trek.client.models import ENDED
from trek.control.checkpoints.best_checkpoint import Candidate, stored_candidates
from trek.control.experiments.parsed_config import parsed_config
from trek.control.layout import Layout
from trek.control.tables import (
    CheckpointTable,
    ExperimentRow,
    LogTable,
    MetricBlockTable,
    MetricTable,
    ModelVersionRow,
    TrialRow,
)
from trek.control.trials.ingest import newest_checkpoint
from trek.errors import InputError, StorageError
from trek.experiments.checkpoint_address import remove_checkpoint
from trek.experiments.config import CheckpointStorage

_LOG = logging.getLogger(__name__)


def expired(candidates: Sequence[Candidate], storage: CheckpointStorage) -> set[str]:
    """Which checkpoints of an ended experiment the policy does not keep. Pure."""
    keep: set[str] = set()
    by_score = sorted((c for c in candidates if c.score is not None), key=lambda c: (c.score, c.batches))
    keep |= {c.uuid for c in by_score[: storage.save_experiment_best]}
    for trial_id in {c.trial_id for c in candidates}:
        newest = sorted((c for c in candidates if c.trial_id == trial_id), key=lambda c: -c.batches)
        keep |= {c.uuid for c in newest[: storage.save_trial_latest]}
        keep |= {c.uuid for c in [c for c in by_score if c.trial_id == trial_id][: storage.save_trial_best]}
    return {c.uuid for c in candidates} - keep


def expire_checkpoints(session: Session, experiment: ExperimentRow) -> list[str]:
    """Mark the checkpoints of an ended experiment that the policy does not keep as deleted.

    Returns the folders to remove after the transaction.
    """
    stored = stored_candidates(session, experiment)
    storage = parsed_config(experiment).checkpoint_storage
    gone = expired([candidate for _, candidate in stored], storage)
    needed = needed_paths(session)
    folders = []
    for row, _ in stored:
        if row.uuid in gone and row.path not in needed:
            row.is_deleted = True
            folders.append(row.path)
    for trial in session.scalars(select(TrialRow).where(TrialRow.experiment_id == experiment.id)):
        if trial.checkpoint in gone:
            trial.checkpoint = newest_checkpoint(session, trial.id)
    return folders


def delete_experiment(session: Session, experiment: ExperimentRow, *, layout: Layout) -> list[str]:
    """Delete an experiment's rows; returns the folders to remove after the transaction."""
    # Only this section: an experiment whose config can no longer be read can still be deleted.
    storage = CheckpointStorage.model_validate(experiment.config.get("checkpoint_storage", {}))
    trials = session.scalars(select(TrialRow).where(TrialRow.experiment_id == experiment.id)).all()
    ids = [trial.id for trial in trials]
    paths = session.scalars(select(CheckpointTable.path).where(CheckpointTable.trial_id.in_(ids))).all()
    if in_use := set(paths) & needed_paths(session):
        raise InputError(
            f"experiment {experiment.id} cannot be deleted: its checkpoint {sorted(in_use)[0]} "
            "is a version of a model, or a trial that has not ended starts from it. "
            "Delete the model, or wait for the trial."
        )
    folders = [str(layout.trial(trial_id)) for trial_id in ids]
    folders += [layout.checkpoints(experiment.id, trial_id, storage) for trial_id in ids]
    session.execute(delete(ExperimentRow).where(ExperimentRow.id == experiment.id))
    return folders


def expire_logs(session: Session, *, now_s: float) -> None:
    """Delete log lines older than their experiment's retention policy allows."""
    for experiment in session.scalars(select(ExperimentRow)):
        days = experiment.config.get("retention_policy", {}).get("log_retention_days", -1)
        if days >= 0:
            owned = select(TrialRow.id).where(TrialRow.experiment_id == experiment.id)
            old = delete(LogTable).where(LogTable.trial_id.in_(owned), LogTable.time_s < now_s - days * 86_400)
            session.execute(old)


def expire_metrics(session: Session, *, now_s: float) -> None:
    """Delete the metrics, validations excepted, of experiments that ended long enough ago."""
    for experiment in session.scalars(select(ExperimentRow).where(ExperimentRow.ended_s.is_not(None))):
        # Read from the raw config, which may be of an earlier release: parsing thousands would hold the lock too long.
        days = experiment.config.get("retention_policy", {}).get("metric_retention_days", -1)
        if days < 0 or (experiment.ended_s or now_s) >= now_s - days * 86_400 or experiment.state not in ENDED:
            continue
        owned = select(TrialRow.id).where(TrialRow.experiment_id == experiment.id)
        for table in (MetricTable, MetricBlockTable):
            session.execute(delete(table).where(table.trial_id.in_(owned), table.group != "validation"))


def remove_folders(places: Iterable[str]) -> None:
    """Remove local folders and those behind URLs. Missing ones are ignored; unreachable ones are logged."""
    for place in places:
        try:
            remove_checkpoint(place)
        except StorageError as error:
            _LOG.warning("%s Remove it manually.", error)


def needed_paths(session: Session) -> set[str]:
    """Folders of checkpoints that are versions of a model, or that a trial which has not ended starts from."""
    waiting = select(TrialRow.start_checkpoint).where(
        TrialRow.state.not_in(ENDED), TrialRow.start_checkpoint.is_not(None)
    )
    registered = select(CheckpointTable.path).join(ModelVersionRow, ModelVersionRow.checkpoint == CheckpointTable.uuid)
    return {path for query in (waiting, registered) for path in session.scalars(query) if path is not None}
