"""Checkpoints in a folder on this machine or on a shared file system."""

from __future__ import annotations

import os
import secrets
import tempfile
from pathlib import Path

from trek.system.disk import storage_error
from trek.system.plain_files import remove_tree
from trek.system.urls import local_path
from trek.train.checkpointing.stores.base import MANIFEST, REMEDY, Storage

_WRITING, _DELETING = ".writing-", ".deleting-"


class FolderStorage(Storage):
    """A folder on this machine or on a shared file system."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = str(folder)

    @classmethod
    def open(cls, address: str) -> FolderStorage:
        """A path, or a `file://` URL."""
        return cls(local_path(address))

    def prepare(self) -> None:
        """Create the folder and write a temporary file to it."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder) as probe:
                probe.write(b"x")
        except OSError as error:
            raise storage_error(error, self.folder, remedy=REMEDY) from error

    def workspace(self) -> Path:
        """A hidden folder next to the checkpoints, so that publishing is a rename within one file system."""
        self.folder.mkdir(parents=True, exist_ok=True)
        made = self.folder / f"{_WRITING}{secrets.token_hex(8)}"
        made.mkdir()  # with the user's umask, unlike `mkdtemp`: a shared folder is shared
        return made

    def publish(self, workspace: Path, name: str) -> str:
        """Sync every file and the folder, then rename."""
        for path in workspace.iterdir():
            _sync(path)
        _sync(workspace)
        target = self.folder / name
        workspace.replace(target)
        _sync(self.folder)
        return str(target)

    def names(self) -> list[str]:
        """Folders with a manifest."""
        return sorted(path.parent.name for path in self.folder.glob(f"[!.]*/{MANIFEST}"))

    def fetch(self, name: str, *, only: str | None = None) -> Path:
        """The folder itself."""
        return self.folder / name

    def delete(self, name: str) -> None:
        """Rename it first, so that a partly deleted checkpoint is never visible. Links are removed, not followed."""
        doomed = self.folder / f"{_DELETING}{name}"
        remove_tree(doomed)  # left by a process that was killed here
        try:
            (self.folder / name).replace(doomed)
        except (FileNotFoundError, NotADirectoryError):
            return
        remove_tree(doomed)

    def remove_unfinished(self) -> None:
        """Workspaces, and folders that were renamed to be deleted."""
        for beginning in (_WRITING, _DELETING):
            for path in self.folder.glob(f"{beginning}*"):
                remove_tree(path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe in its place must not hold this up
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
