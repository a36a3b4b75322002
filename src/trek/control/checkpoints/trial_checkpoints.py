"""TrialCheckpoints: what the processes of a running trial store and fetch through the control plane.

For processes on machines that share no disk with the control plane. A checkpoint is received into a workspace, compared
with its manifest, and only then published, so that it is stored whole or not at all.
"""

from __future__ import annotations

import re
import shutil
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO

from sqlalchemy import select
from sqlalchemy.orm import Session

from trek.control.checkpoints.lent_folder import LentFolder
from trek.control.checkpoints.trial_storage import TrialStorage
from trek.control.experiments.parsed_config import parsed_config
from trek.control.layout import Layout
from trek.control.lookup import find_experiment, find_running
from trek.control.store import Store
from trek.control.tables import CheckpointTable, ExperimentRow, TrialRow
from trek.errors import CheckpointError, InputError, NotFound
from trek.experiments.checkpoint_address import borrowed_checkpoint, open_uncached
from trek.system.disk import storage_errors
from trek.system.plain_files import read_plain, remove_tree
from trek.train.checkpointing.manifest import MAX_MANIFEST_BYTES, read_manifest, verify_files
from trek.train.checkpointing.stores import MANIFEST, Storage

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
        with storage.rights():
            return open_uncached(storage.address).names()

    @contextmanager
    def folder(self, trial_id: int, name: str, *, run: int) -> Iterator[LentFolder]:
        """A local folder with the files of a checkpoint, for the length of the block."""
        _, storage = self._running(trial_id, run=run)
        address = f"{storage.address}/{name}"
        storage.check(address)
        with borrowed_checkpoint(address) as path:
            folder = LentFolder(path, storage.rights)
            if not folder.has(MANIFEST):
                raise NotFound(f"trial {trial_id} has no checkpoint {name!r}.")
            yield folder

    @contextmanager
    def start_folder(self, trial_id: int, *, run: int) -> Iterator[LentFolder]:
        """A local folder with the checkpoint that the trial starts from, for the length of the block."""
        trial, _ = self._running(trial_id, run=run)
        address = trial.start_checkpoint
        if address is None:
            raise NotFound(f"trial {trial_id} does not start from a checkpoint.")
        with self._store.reading() as session:
            owner = _owner_of(session, address) or find_experiment(session, trial.experiment_id).owner
        with borrowed_checkpoint(address) as path:
            yield LentFolder(path, partial(self._layout.rights, address, owner=owner))

    def receive(self, trial_id: int, name: str, tar: IO[bytes], *, run: int) -> str:
        """Store the checkpoint whose files are in `tar`; returns its address. The same one sent again is accepted."""
        trial, storage = self._running(trial_id, run=run)
        storage.check(f"{storage.address}/{name}")
        with storage_errors(storage.address, remedy=_REMEDY):
            with storage.rights():
                place = open_uncached(storage.address)
                workspace = place.workspace()
            try:
                with storage.rights():
                    sizes = _unpack(tar, workspace)
                    _check(workspace, sizes=sizes, owner=trial.uuid)
                self._running(trial_id, run=run)  # it may have ended while the files arrived
                with storage.rights():
                    return _publish(place, workspace, name)
            finally:
                with storage.rights():
                    remove_tree(workspace)  # publishing may have moved it

    def _running(self, trial_id: int, *, run: int) -> tuple[TrialRow, TrialStorage]:
        with self._store.reading() as session:
            trial = find_running(session, trial_id, run=run)
            experiment = find_experiment(session, trial.experiment_id)
        storage = parsed_config(experiment).checkpoint_storage
        return trial, self._layout.checkpoints(trial, storage, owner=experiment.owner)


def _owner_of(session: Session, address: str) -> str | None:
    """Whose trial wrote the checkpoint at `address`; None if it is none that a trial reported."""
    owners = select(ExperimentRow.owner).join(TrialRow).join(CheckpointTable).where(CheckpointTable.path == address)
    return session.scalars(owners.limit(1)).first()


def _unpack(tar: IO[bytes], workspace: Path) -> dict[str, int]:
    """Write the regular files of a tar, which is read as it arrives; returns their sizes by name."""
    sizes: dict[str, int] = {}
    try:
        with tarfile.open(fileobj=tar, mode="r|", bufsize=_BUFFER) as members:
            for member in members:
                _write(members.extractfile(member) if member.isreg() else None, member.name, workspace)
                sizes[member.name] = member.size
    except tarfile.TarError as error:
        raise InputError(f"the checkpoint arrived incomplete or damaged: {error}. Send it again.") from error
    return sizes


def _write(content: IO[bytes] | None, name: str, workspace: Path) -> None:
    if content is None or not _FILE_NAME.fullmatch(name):
        raise InputError(f"a checkpoint consists of plain files without folders, got {name!r}.")
    with (workspace / name).open("xb") as file:
        shutil.copyfileobj(content, file, _BUFFER)


def _check(workspace: Path, *, sizes: Mapping[str, int], owner: str) -> None:
    """InputError unless the files are exactly those that the manifest lists, and the manifest is the trial's.

    `sizes` are what was received. The trial may reach the workspace, and replace files there by larger ones.
    """
    try:
        manifest = read_manifest(workspace)
        listed = {name: facts["bytes"] for name, facts in manifest["files"].items()}
        if extra := sizes.keys() - {MANIFEST, *listed}:
            raise InputError(f"the checkpoint was not stored: its manifest does not list {min(extra)!r}.")
        if other := [name for name, size in listed.items() if size != sizes.get(name)]:
            raise CheckpointError(
                f"checkpoint {workspace} is incomplete: {min(other)} is missing or has the wrong size."
            )
        verify_files(workspace, manifest)
    except CheckpointError as error:
        raise InputError(f"the checkpoint was not stored: {error}") from error
    if manifest.get("owner", "") != owner:
        raise InputError("the checkpoint was not stored: its manifest names another trial as its owner.")


def _publish(place: Storage, workspace: Path, name: str) -> str:
    """Publish, unless an earlier attempt did, whose answer was lost."""
    if name not in place.names():
        return place.publish(workspace, name)
    stored = place.fetch(name, only=MANIFEST)
    manifests = [read_plain(folder / MANIFEST, max_bytes=MAX_MANIFEST_BYTES) for folder in (stored, workspace)]
    if manifests[0] != manifests[1]:
        raise InputError(f"the trial has another checkpoint {name!r} already. Use another name.")
    return f"{place.address}/{name}"
