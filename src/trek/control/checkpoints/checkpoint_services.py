"""What can be asked of checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import select, tuple_

from trek.client import models
from trek.client.models import ENDED
from trek.control import views
from trek.control.experiments.removal import needed_paths, remove_folders
from trek.control.lookup import find_checkpoint, find_experiment, find_trial
from trek.control.service_base import ServiceBase
from trek.control.tables import CheckpointTable, TrialRow
from trek.control.trials.ingest import newest_checkpoint
from trek.errors import InputError, NotFound
from trek.experiments.checkpoint_address import borrowed_checkpoint


class CheckpointServices(ServiceBase):
    """List, find and delete checkpoints."""

    def checkpoints(
        self,
        *,
        experiment_id: int | None = None,
        trial_id: int | None = None,
        limit: int | None = None,
        before: tuple[float, str] | None = None,
    ) -> list[models.Checkpoint]:
        """Checkpoints that are still there, the newest first: `limit` of them, made before `before` (and its uuid)."""
        with self._store.reading() as session:
            query = select(CheckpointTable, TrialRow.experiment_id).join(TrialRow).where(~CheckpointTable.is_deleted)
            if experiment_id is not None:
                find_experiment(session, experiment_id)
                query = query.where(TrialRow.experiment_id == experiment_id)
            if trial_id is not None:
                find_trial(session, trial_id)
                query = query.where(CheckpointTable.trial_id == trial_id)
            if before is not None:
                query = query.where(tuple_(CheckpointTable.time_s, CheckpointTable.uuid) < tuple_(*before))
            newest = (CheckpointTable.time_s.desc(), CheckpointTable.uuid.desc())
            rows = session.execute(query.order_by(*newest).limit(limit)).all()
        return [views.checkpoint(row, experiment_id=owner) for row, owner in rows]

    def checkpoint(self, uuid: str) -> models.Checkpoint:
        """One checkpoint; `uuid` may be shortened as long as it names one."""
        with self._store.reading() as session:
            row = find_checkpoint(session, uuid)
            owner = session.get_one(TrialRow, row.trial_id).experiment_id
        return views.checkpoint(row, experiment_id=owner)

    @contextmanager
    def checkpoint_folder(self, uuid: str) -> Iterator[Path]:
        """A folder of this machine with a checkpoint's files: their own, or a copy that lasts as long as the block."""
        found = self.checkpoint(uuid)
        if found.is_deleted:
            raise NotFound(f"the files of checkpoint {found.uuid} were deleted.")
        with borrowed_checkpoint(found.path) as folder:
            if not folder.is_dir():
                raise NotFound(f"the files of checkpoint {found.uuid} were deleted.")
            yield folder

    def delete_checkpoint(self, uuid: str) -> models.Checkpoint:
        """Delete a checkpoint's files; refused while its trial may still need it."""
        with self._store.writing() as session:
            row = find_checkpoint(session, uuid)
            trial = session.get_one(TrialRow, row.trial_id)
            if trial.state not in ENDED:
                raise InputError(f"trial {trial.id} is {trial.state} and may go on from checkpoint {row.uuid}.")
            if row.path in needed_paths(session):
                raise InputError(f"checkpoint {row.uuid} is a version of a model, or a trial starts from it.")
            row.is_deleted = True
            trial.checkpoint = newest_checkpoint(session, trial.id)
        remove_folders([row.path])
        return self.checkpoint(row.uuid)
