"""Removes the files of checkpoints that the keep policy has deleted: outside of transactions, with retries.

What is to be removed is written down with the decision, so a control plane that is killed in between forgets nothing.
"""

from __future__ import annotations

import logging

from sqlalchemy import select

from trek.control.experiments.parsed_config import parsed_config
from trek.control.layout import Layout
from trek.control.store import Store
from trek.control.tables import CheckpointTable, ExperimentRow, TrialRow
from trek.errors import InputError, StorageError
from trek.system.clock import Clock

RETRY_S = 60.0
"""How long to wait before removing from a store that failed is tried again."""
BATCH = 100
_LOG = logging.getLogger(__name__)


class PendingRemovals:
    """See the module. Used by the supervisor's thread only."""

    def __init__(self, store: Store, *, layout: Layout, clock: Clock) -> None:
        self._store = store
        self._layout = layout
        self._clock = clock
        self._not_before: dict[str, float] = {}

    def remove(self) -> None:
        """Remove the files that are due."""
        with self._store.reading() as session:
            rows = session.execute(
                select(CheckpointTable, TrialRow, ExperimentRow)
                .join(TrialRow, CheckpointTable.trial_id == TrialRow.id)
                .join(ExperimentRow, TrialRow.experiment_id == ExperimentRow.id)
                .where(CheckpointTable.awaits_removal)
                .limit(BATCH + len(self._not_before))
            ).all()
        now_s = self._clock.monotonic_s()
        due = [row for row in rows if self._not_before.get(row[0].uuid, now_s) <= now_s]
        done = [checkpoint.uuid for checkpoint, trial, experiment in due if self._remove(checkpoint, trial, experiment)]
        if done:
            with self._store.writing() as session:
                for row in session.scalars(select(CheckpointTable).where(CheckpointTable.uuid.in_(done))):
                    row.awaits_removal = False

    def _remove(self, checkpoint: CheckpointTable, trial: TrialRow, experiment: ExperimentRow) -> bool:
        storage = self._layout.checkpoints(trial, parsed_config(experiment).checkpoint_storage, owner=experiment.owner)
        try:
            storage.remove(checkpoint.path)
        except InputError as error:
            _LOG.warning("not removed: %s", error)
        except StorageError as error:
            self._not_before[checkpoint.uuid] = self._clock.monotonic_s() + RETRY_S
            _LOG.warning("%s It is tried again in %g s.", error, RETRY_S)
            return False
        self._not_before.pop(checkpoint.uuid, None)
        return True
