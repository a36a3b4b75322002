"""Copies of checkpoints for trials that start from another trial's: each gets its copy before it may start.

A copy, since the other trial continues and replaces its checkpoints; made outside of transactions, since the source may
be behind a URL. If the supervisor dies in between, the trial is unchanged and the next supervisor makes the copy.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.orm import Session, aliased

from trek.control.layout import Layout
from trek.control.store import Store
from trek.control.tables import CheckpointTable, TrialRow
from trek.errors import StorageError
from trek.experiments.checkpoint_address import fetch_checkpoint
from trek.world.clock import Clock
from trek.world.urls import is_remote, local_path

RETRY_S = 30.0
"""How long to wait before copying from a store that failed is tried again."""


class StartCheckpoints:
    """See the module. Used by the supervisor's thread only."""

    def __init__(self, store: Store, *, layout: Layout, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._layout = layout
        self._failed: dict[int, tuple[float, str]] = {}

    def copy_missing(self) -> dict[int, str]:
        """Copy the checkpoints that queued trials start from; returns the trials that cannot start yet, and why."""
        with self._store.reading() as session:
            sources = _sources(session)
        for trial, source in sources:
            since_s, _ = self._failed.get(trial.id, (-RETRY_S, ""))
            if self._clock.monotonic_s() - since_s >= RETRY_S:
                self._copy(trial, source)
        return {trial.id: self._failed[trial.id][1] for trial, _ in sources if trial.id in self._failed}

    def _copy(self, trial: TrialRow, source: str) -> None:
        try:
            made = copy_checkpoint(source, self._layout.trial(trial) / "start")
        except (StorageError, OSError) as error:
            why = f"the checkpoint it starts from cannot be copied: {error}"
            self._failed[trial.id] = (self._clock.monotonic_s(), why)
            return
        self._failed.pop(trial.id, None)
        with self._store.writing() as session:
            row = session.get(TrialRow, trial.id)
            if row is not None and row.run == 0:
                row.start_checkpoint = str(made)


def copy_checkpoint(source: str, target: Path) -> Path:
    """Copy a checkpoint into the folder `target`; files are hard-linked where the file system allows it."""
    shutil.rmtree(target, ignore_errors=True)  # left by a process that was killed while copying
    if is_remote(source):
        target.parent.mkdir(parents=True, exist_ok=True)
        return fetch_checkpoint(source, into=target)
    shutil.copytree(local_path(source), target, copy_function=_link_file)
    return target


def _sources(session: Session) -> list[tuple[TrialRow, str]]:
    """For each trial that needs a copy, where the checkpoint is. Parents without a checkpoint are left out."""
    parent = aliased(TrialRow)
    rows = session.execute(
        select(TrialRow, CheckpointTable.path)
        .join(parent, (parent.experiment_id == TrialRow.experiment_id) & (parent.key == TrialRow.parent_key))
        .join(CheckpointTable, CheckpointTable.uuid == parent.checkpoint)
        .where(TrialRow.state == "queued", TrialRow.run == 0, TrialRow.start_checkpoint.is_(None))
        .order_by(TrialRow.id)
    )
    return [(trial, path) for trial, path in rows]


def _link_file(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
