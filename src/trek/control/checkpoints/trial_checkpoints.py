"""TrialCheckpoints: what the processes of a running trial store and fetch through the control plane.

For processes on machines that share no disk with the control plane. A checkpoint is received into a workspace, compared
with its manifest, and only then published, so that it is stored whole or not at all.
"""

from __future__ import annotations

import re
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from trek.control.checkpoints.trial_storage import TrialStorage
from trek.control.experiments.parsed_config import parsed_config
from trek.control.layout import Layout
from trek.control.lookup import find_experiment, find_running
from trek.control.store import Store
from trek.control.tables import TrialRow
from trek.errors import CheckpointError, InputError, NotFound
from trek.experiments.checkpoint_address import borrowed_checkpoint, open_uncached
from trek.train.checkpointing.manifest import read_manifest, verify_files
from trek.train.checkpointing.stores import MANIFEST, Storage
from trek.world.disk import storage_errors

MAX_BYTES = 2**40
"""The largest checkpoint that is received."""
_BUFFER = 2**20
_FILE_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")
_REMEDY = "Free some space there, or set checkpoint_storage.url to a store that all nodes reach."


class TrialCheckpoints:
    """Checkpoints of the running trials of one store."""

    def __init__(self, store: Store, *, layout: Layout) -> None:
        self._store = store
        self._layout = layout

    def names(self, trial_id: int, *, run: int) -> list[str]:
        """The complete checkpoints of the trial, reported or not."""
        _, storage = self._running(trial_id, run=run)
        return open_uncached(storage.address).names()

    @contextmanager
    def folder(self, trial_id: int, name: str, *, run: int) -> Iterator[Path]:
        """A local folder with the files of a checkpoint, for the length of the block."""
        _, storage = self._running(trial_id, run=run)
        address = f"{storage.address}/{name}"
        storage.check(address)
        with borrowed_checkpoint(address) as folder:
            if not (folder / MANIFEST).is_file():
                raise NotFound(f"trial {trial_id} has no checkpoint {name!r}.")
            yield folder

    @contextmanager
    def start_folder(self, trial_id: int, *, run: int) -> Iterator[Path]:
        """A local folder with the checkpoint that the trial starts from, for the length of the block."""
        trial, _ = self._running(trial_id, run=run)
        if trial.start_checkpoint is None:
            raise NotFound(f"trial {trial_id} does not start from a checkpoint.")
        with borrowed_checkpoint(trial.start_checkpoint) as folder:
            yield folder

    def receive(self, trial_id: int, name: str, tar: IO[bytes], *, run: int) -> str:
        """Store the checkpoint whose files are in `tar`; returns its address. The same one sent again is accepted."""
        trial, storage = self._running(trial_id, run=run)
        storage.check(f"{storage.address}/{name}")
        place = open_uncached(storage.address)
        with storage_errors(storage.address, remedy=_REMEDY):
            workspace = place.workspace()
            try:
                _unpack(tar, workspace)
                _check(workspace, owner=trial.uuid)
                self._running(trial_id, run=run)  # it may have ended while the files arrived
                return _publish(place, workspace, name)
            finally:
                shutil.rmtree(workspace, ignore_errors=True)  # publishing may have moved it

    def _running(self, trial_id: int, *, run: int) -> tuple[TrialRow, TrialStorage]:
        with self._store.reading() as session:
            trial = find_running(session, trial_id, run=run)
            config = parsed_config(find_experiment(session, trial.experiment_id))
        return trial, self._layout.checkpoints(trial, config.checkpoint_storage)


def _unpack(tar: IO[bytes], workspace: Path) -> None:
    """Write the regular files of a tar, which is read as it arrives."""
    try:
        with tarfile.open(fileobj=tar, mode="r|", bufsize=_BUFFER) as members:
            for member in members:
                _write(members.extractfile(member) if member.isreg() else None, member.name, workspace)
    except tarfile.TarError as error:
        raise InputError(f"the checkpoint arrived incomplete or damaged: {error}. Send it again.") from error


def _write(content: IO[bytes] | None, name: str, workspace: Path) -> None:
    if content is None or not _FILE_NAME.fullmatch(name):
        raise InputError(f"a checkpoint consists of plain files without folders, got {name!r}.")
    with (workspace / name).open("xb") as file:
        shutil.copyfileobj(content, file, _BUFFER)


def _check(workspace: Path, *, owner: str) -> None:
    """InputError unless the files are exactly those that the manifest lists, and the manifest is the trial's."""
    try:
        manifest = read_manifest(workspace)
        verify_files(workspace, manifest)
    except CheckpointError as error:
        raise InputError(f"the checkpoint was not stored: {error}") from error
    if manifest.get("owner", "") != owner:
        raise InputError("the checkpoint was not stored: its manifest names another trial as its owner.")
    if extra := {path.name for path in workspace.iterdir()} - {MANIFEST, *manifest["files"]}:
        raise InputError(f"the checkpoint was not stored: its manifest does not list {min(extra)!r}.")


def _publish(place: Storage, workspace: Path, name: str) -> str:
    """Publish, unless an earlier attempt did, whose answer was lost."""
    if name not in place.names():
        return place.publish(workspace, name)
    stored = place.fetch(name, only=MANIFEST) / MANIFEST
    if stored.read_bytes() != (workspace / MANIFEST).read_bytes():
        raise InputError(f"the trial has another checkpoint {name!r} already. Use another name.")
    return f"{place.address}/{name}"
