"""Removal of what is no longer needed: logs and metrics by age, whole experiments. For checkpoints, see `retention`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from trek.client.models import ENDED
from trek.control.checkpoints.retention import needed_paths
from trek.control.checkpoints.trial_storage import TrialStorage
from trek.control.layout import Layout
from trek.control.tables import (
    CheckpointTable,
    ExperimentRow,
    LogTable,
    MetricBlockTable,
    MetricTable,
    TrialRow,
)
from trek.errors import InputError, StorageError
from trek.experiments.config import CheckpointStorage
from trek.system.plain_files import remove_tree

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class ExperimentFiles:
    """The files of an experiment that was deleted."""

    folders: Sequence[Path]
    storages: Sequence[TrialStorage]

    def remove(self) -> None:
        """Remove them. Missing ones are ignored; unreachable ones are logged."""
        for storage in self.storages:
            try:
                storage.remove_all()
            except (InputError, StorageError) as error:  # also where the trial's user does not exist any more
                _LOG.warning("%s Remove the checkpoints at %s manually.", error, storage.address)
        for folder in self.folders:
            remove_tree(folder)


def delete_experiment(session: Session, experiment: ExperimentRow, *, layout: Layout) -> ExperimentFiles:
    """Delete an experiment's rows; returns the files to remove after the transaction."""
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
    files = ExperimentFiles(
        folders=[layout.trial(trial) for trial in trials],
        storages=[layout.checkpoints(trial, storage, owner=experiment.owner) for trial in trials],
    )
    session.execute(delete(ExperimentRow).where(ExperimentRow.id == experiment.id))
    return files


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
