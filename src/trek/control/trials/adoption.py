"""New trials that start from another one's checkpoint: each gets a copy of it before it may start.

A copy, since the other trial goes on and replaces its checkpoints; made outside of transactions, since what is copied
may lie behind a URL. A supervisor that dies in between leaves the trial as it was, for the next one to see to.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.orm import Session, aliased

from trek.control.layout import Layout
from trek.control.store import Store
from trek.control.tables import CheckpointTable, TrialRow
from trek.errors import StorageError
from trek.experiments.checkpoint_address import fetch_checkpoint
from trek.world.urls import is_remote

RETRY_S = 30.0
"""How long a store that failed is left alone."""


class Adoption:
    """See the module. Used by the supervisor's thread alone."""

    def __init__(self, store: Store, *, layout: Layout) -> None:
        self._store = store
        self._layout = layout
        self._failed: dict[int, tuple[float, str]] = {}

    def make_copies(self) -> dict[int, str]:
        """Copy what queued trials start from; gives those that cannot start yet, and why."""
        with self._store.reading() as session:
            sources = _sources(session)
        for trial_id, source in sources.items():
            since_s, _ = self._failed.get(trial_id, (-RETRY_S, ""))
            if time.monotonic() - since_s >= RETRY_S:
                self._copy(trial_id, source)
        return {trial_id: self._failed[trial_id][1] for trial_id in sources if trial_id in self._failed}

    def _copy(self, trial_id: int, source: str) -> None:
        try:
            made = copy_checkpoint(source, self._layout.trial(trial_id) / "start")
        except (StorageError, OSError) as error:
            self._failed[trial_id] = (time.monotonic(), f"the checkpoint it starts from cannot be copied: {error}")
            return
        self._failed.pop(trial_id, None)
        with self._store.writing() as session:
            trial = session.get(TrialRow, trial_id)
            if trial is not None and trial.run == 0:
                trial.start_checkpoint = str(made)


def copy_checkpoint(source: str, target: Path) -> Path:
    """The files of a checkpoint in a folder of their own; linked, not copied, where the file system can."""
    shutil.rmtree(target, ignore_errors=True)  # of somebody who was killed while copying
    if is_remote(source):
        target.parent.mkdir(parents=True, exist_ok=True)
        return fetch_checkpoint(source, into=target)
    shutil.copytree(source, target, copy_function=_link_file)
    return target


def _sources(session: Session) -> dict[int, str]:
    """By trial that waits for its copy, where the checkpoint is. Parents without a checkpoint give none."""
    parent = aliased(TrialRow)
    rows = session.execute(
        select(TrialRow.id, CheckpointTable.path)
        .join(parent, (parent.experiment_id == TrialRow.experiment_id) & (parent.key == TrialRow.parent_key))
        .join(CheckpointTable, CheckpointTable.uuid == parent.checkpoint)
        .where(TrialRow.state == "queued", TrialRow.run == 0, TrialRow.start_checkpoint.is_(None))
        .order_by(TrialRow.id)
    )
    return {row.id: row.path for row in rows}


def _link_file(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
