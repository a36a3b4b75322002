"""CheckpointService: lists, finds, opens and deletes checkpoints."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import select, tuple_

from trek.client import models
from trek.client.models import ENDED
from trek.control import views
from trek.control.checkpoints.best_checkpoint import best_checkpoint, best_of_trial
from trek.control.checkpoints.checkpoint_rows import newest_checkpoint
from trek.control.checkpoints.lent_folder import LentFolder
from trek.control.checkpoints.retention import needed_paths
from trek.control.checkpoints.trial_storage import TrialStorage
from trek.control.experiments.parsed_config import parsed_config
from trek.control.layout import Layout
from trek.control.lookup import find_checkpoint, find_experiment, find_trial
from trek.control.store import Store
from trek.control.tables import CheckpointTable, TrialRow
from trek.errors import InputError, NotFound, StorageError
from trek.experiments.checkpoint_address import borrowed_checkpoint

_LOG = logging.getLogger(__name__)


class CheckpointService:
    """Checkpoints of one store. Their files may be on this machine or behind a URL."""

    def __init__(self, store: Store, *, layout: Layout) -> None:
        self._store = store
        self._layout = layout

    def all(
        self,
        *,
        experiment_id: int | None = None,
        trial_id: int | None = None,
        limit: int | None = None,
        before: tuple[float, str] | None = None,
    ) -> list[models.CheckpointRecord]:
        """Checkpoints that are still stored, the newest first: at most `limit`, older than `before` (time, uuid)."""
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

    def get(self, uuid: str) -> models.CheckpointRecord:
        """One checkpoint; the beginning of its uuid is enough where no other has it."""
        with self._store.reading() as session:
            row = find_checkpoint(session, uuid)
            owner = session.get_one(TrialRow, row.trial_id).experiment_id
        return views.checkpoint(row, experiment_id=owner)

    def best(self, experiment_id: int) -> models.BestCheckpoint:
        """The best checkpoint of an experiment; see `best_checkpoint` for what is best."""
        with self._store.reading() as session:
            best = best_checkpoint(session, find_experiment(session, experiment_id))
        if best is None:
            raise NotFound(f"experiment {experiment_id} has no checkpoint. See checkpoint_policy in its config.")
        row, reason = best
        found = views.checkpoint(row, experiment_id=experiment_id)
        return models.BestCheckpoint(**found.model_dump(), reason=reason)

    def best_of_trial(self, trial_id: int) -> models.BestCheckpoint:
        """The best checkpoint of one trial, by the same rule."""
        with self._store.reading() as session:
            experiment_id = find_trial(session, trial_id).experiment_id
            best = best_of_trial(session, find_experiment(session, experiment_id), trial_id)
        if best is None:
            raise NotFound(f"trial {trial_id} has no checkpoint. See checkpoint_policy in its config.")
        uuid, reason = best
        return models.BestCheckpoint(**self.get(uuid).model_dump(), reason=reason)

    @contextmanager
    def folder(self, uuid: str) -> Iterator[LentFolder]:
        """A local folder with a checkpoint's files: the stored ones, or a copy that is removed when the block ends."""
        with self._store.reading() as session:
            found = find_checkpoint(session, uuid)
        storage = self._storage(uuid)
        gone = NotFound(f"the files of checkpoint {found.uuid} were deleted.")
        if found.is_deleted:
            raise gone
        storage.check(found.path)
        with borrowed_checkpoint(found.path) as path:
            folder = LentFolder(path, storage.rights)
            if not folder.exists:
                raise gone
            yield folder

    def delete(self, uuid: str) -> models.CheckpointRecord:
        """Delete a checkpoint's files; refused while its trial may still need it."""
        storage = self._storage(uuid)
        with self._store.writing() as session:
            row = find_checkpoint(session, uuid)
            trial = session.get_one(TrialRow, row.trial_id)
            if trial.state not in ENDED:
                raise InputError(
                    f"checkpoint {row.uuid} cannot be deleted: trial {trial.id} is {trial.state} and may need it."
                )
            if row.path in needed_paths(session):
                raise InputError(
                    f"checkpoint {row.uuid} cannot be deleted: it is a version of a model, or a trial starts from it."
                )
            storage.check(row.path)
            row.is_deleted = True
            trial.checkpoint = newest_checkpoint(session, trial.id)
        try:
            storage.remove(row.path)
        except (InputError, StorageError) as error:  # also where the trial's user does not exist any more
            _LOG.warning("%s Remove the checkpoint at %s manually.", error, row.path)
        return self.get(row.uuid)

    def _storage(self, uuid: str) -> TrialStorage:
        with self._store.reading() as session:
            trial = session.get_one(TrialRow, find_checkpoint(session, uuid).trial_id)
            experiment = find_experiment(session, trial.experiment_id)
        config = parsed_config(experiment)
        return self._layout.checkpoints(trial, config.checkpoint_storage, owner=experiment.owner)
