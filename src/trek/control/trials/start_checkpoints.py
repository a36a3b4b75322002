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

from trek.control.file_rights import rights_of
from trek.control.layout import Layout
from trek.control.store import Store
from trek.control.tables import CheckpointTable, ExperimentRow, TrialRow
from trek.control.trials.trial_user import make_leaf, make_passages
from trek.engines import OsUser
from trek.errors import InputError, StorageError
from trek.experiments.checkpoint_address import fetch_checkpoint
from trek.system.clock import Clock
from trek.system.plain_files import NotPlainFile, open_plain, remove_tree
from trek.system.urls import is_remote, local_path

_BUFFER = 1 << 20
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
        for trial, source, owner in sources:
            since_s, _ = self._failed.get(trial.id, (-RETRY_S, ""))
            if self._clock.monotonic_s() - since_s >= RETRY_S:
                self._copy(trial, source, owner=owner)
        return {trial.id: self._failed[trial.id][1] for trial, _, _ in sources if trial.id in self._failed}

    def _copy(self, trial: TrialRow, source: str, *, owner: str) -> None:
        try:
            user = None if (run_as := self._layout.run_as) is None else run_as.user_of(owner)
            if user is not None:
                make_passages(self._layout.trials, self._layout.trial(trial))
            made = copy_checkpoint(source, self._layout.trial(trial) / "start", user=user)
        except (InputError, StorageError, OSError) as error:
            why = f"the checkpoint it starts from cannot be copied: {error}"
            self._failed[trial.id] = (self._clock.monotonic_s(), why)
            return
        self._failed.pop(trial.id, None)
        with self._store.writing() as session:
            row = session.get(TrialRow, trial.id)
            if row is not None and row.run == 0:
                row.start_checkpoint = str(made)


def copy_checkpoint(source: str, target: Path, *, user: OsUser | None = None) -> Path:
    """Copy a checkpoint into the folder `target`; files are hard-linked where the file system allows it.

    With a `user`, the copy belongs to that user, who must be allowed to read what is copied from this machine.
    """
    remove_tree(target)  # left by a process that was killed while copying
    target.parent.mkdir(parents=True, exist_ok=True)
    if is_remote(source):
        fetch_checkpoint(source, into=target)
        if user is not None:
            _give(target, user)
        return target
    if user is not None:
        make_leaf(target, user=user)
    with rights_of(user):
        target.mkdir(exist_ok=True)
        for path in sorted(local_path(source).iterdir()):
            _link_file(path, target / path.name)
    return target


def _sources(session: Session) -> list[tuple[TrialRow, str, str]]:
    """For each trial that needs a copy, where the checkpoint is, and its owner. Parents without one are left out."""
    parent = aliased(TrialRow)
    rows = session.execute(
        select(TrialRow, CheckpointTable.path, ExperimentRow.owner)
        .join(ExperimentRow, TrialRow.experiment_id == ExperimentRow.id)
        .join(parent, (parent.experiment_id == TrialRow.experiment_id) & (parent.key == TrialRow.parent_key))
        .join(CheckpointTable, CheckpointTable.uuid == parent.checkpoint)
        .where(TrialRow.state == "queued", TrialRow.run == 0, TrialRow.start_checkpoint.is_(None))
        .order_by(TrialRow.id)
    )
    return [(trial, path, owner) for trial, path, owner in rows]


def _link_file(source: Path, target: Path) -> None:
    """Leave out everything but regular files: a checkpoint consists of them, and a trial may put anything there."""
    try:
        with open_plain(source) as content:
            try:
                os.link(source, target, follow_symlinks=False)
            except OSError:
                with target.open("xb") as copy:
                    shutil.copyfileobj(content, copy, _BUFFER)
    except NotPlainFile:
        return


def _give(folder: Path, user: OsUser) -> None:
    """Change the owner of the files, then of the folder, so that its user cannot replace files meanwhile."""
    for path in (*folder.iterdir(), folder):
        os.chown(path, user.uid, user.gid, follow_symlinks=False)
