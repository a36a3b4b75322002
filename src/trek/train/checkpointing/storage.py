"""Storage: where finished checkpoints are kept. A local folder, or any place fsspec can reach.

Contract: `publish` makes a checkpoint appear whole or not at all. A folder without its manifest does not exist for
readers, so a store without an atomic rename uploads the manifest last.
"""

from __future__ import annotations

import atexit
import errno
import os
import shutil
import tempfile
from abc import ABC, abstractmethod
from functools import cached_property
from pathlib import Path
from typing import Any

from trek.errors import InputError, StorageError

MANIFEST = "manifest.json"


class Storage(ABC):
    """A place that holds checkpoints by name."""

    address: str
    """The place in words a person knows it by."""

    @abstractmethod
    def prepare(self) -> None:
        """Fail now, not after an hour of training, if nothing can be written here."""

    @abstractmethod
    def workspace(self) -> Path:
        """A fresh local folder to write one checkpoint into."""

    @abstractmethod
    def publish(self, workspace: Path, name: str) -> str:
        """Make the files of `workspace` the checkpoint `name`; the address it can be read from.

        The workspace may be gone afterwards; if not, the caller removes it.
        """

    @abstractmethod
    def names(self) -> list[str]:
        """Checkpoints that are whole as far as their manifest's presence tells, in order of name."""

    @abstractmethod
    def fetch(self, name: str, *, only: str | None = None) -> Path:
        """A local folder with the files of `name`, or with one of them at least. Its last part is `name`."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Remove `name`; no error when it is gone already."""


class FolderStorage(Storage):
    """A folder of this machine, or a shared file system."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = str(folder)

    def prepare(self) -> None:
        """Create the folder and write a byte into it."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder) as probe:
                probe.write(b"x")
        except OSError as error:
            raise storage_error(error, self.folder) from error

    def workspace(self) -> Path:
        """A hidden sibling, so that publishing is a rename within one file system."""
        self.folder.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=".writing-", dir=self.folder))

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
        """Take the name away first, so that a half-deleted checkpoint is never seen."""
        doomed = self.folder / f".deleting-{name}"
        try:
            (self.folder / name).replace(doomed)
        except FileNotFoundError:
            return
        shutil.rmtree(doomed, ignore_errors=True)


class RemoteStorage(Storage):
    """A store behind an fsspec URL, such as `s3://bucket/runs/7` or `memory://runs`."""

    def __init__(self, url: str) -> None:
        import fsspec

        self.address = url.rstrip("/")
        self._files: Any
        try:
            self._files, self._root = fsspec.core.url_to_fs(self.address)
        except (ImportError, ValueError) as error:
            raise InputError(
                f"checkpoints cannot be kept at {url!r}: {error}. Use a folder, or the URL of a store whose package is "
                "installed, such as s3:// with trek[s3]."
            ) from error

    def prepare(self) -> None:
        """Write and remove a byte."""
        probe = f"{self._root}/.probe"
        try:
            self._files.makedirs(self._root, exist_ok=True)
            self._files.pipe_file(probe, b"x")
            self._files.rm_file(probe)
        except OSError as error:
            raise storage_error(error, self.address) from error
        except Exception as error:  # every store has errors of its own kind
            raise StorageError(
                f"checkpoints cannot be written to {self.address}: {str(error).rstrip('.')}. "
                "Check the address and the account for its store."
            ) from error

    def workspace(self) -> Path:
        """A local temporary folder."""
        return Path(tempfile.mkdtemp(prefix="trek-checkpoint-"))

    def publish(self, workspace: Path, name: str) -> str:
        """Upload the manifest last."""
        target = f"{self._root}/{name}"
        self._files.makedirs(target, exist_ok=True)
        for path in sorted(workspace.iterdir(), key=lambda p: p.name == MANIFEST):
            self._files.put_file(str(path), f"{target}/{path.name}")
        return f"{self.address}/{name}"

    def names(self) -> list[str]:
        """Folders with a manifest."""
        return sorted(str(path).split("/")[-2] for path in self._files.glob(f"{self._root}/*/{MANIFEST}"))

    def fetch(self, name: str, *, only: str | None = None) -> Path:
        """Download what is not here yet into a folder that lasts as long as this process."""
        local = self._fetched / name
        local.mkdir(exist_ok=True)
        for remote in self._files.ls(f"{self._root}/{name}", detail=False):
            target = local / str(remote).split("/")[-1]
            if only in (None, target.name) and not target.exists():
                self._files.get_file(remote, str(target))
        return local

    @cached_property
    def _fetched(self) -> Path:
        folder = Path(tempfile.mkdtemp(prefix="trek-fetched-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        return folder

    def delete(self, name: str) -> None:
        """Take the manifest away first."""
        target = f"{self._root}/{name}"
        if self._files.exists(f"{target}/{MANIFEST}"):
            self._files.rm_file(f"{target}/{MANIFEST}")
        if self._files.exists(target):
            self._files.rm(target, recursive=True)


def open_storage(place: Path | str) -> Storage:
    """The Storage for a folder or a URL."""
    if isinstance(place, str) and "://" in place and not place.startswith("file://"):
        return RemoteStorage(place)
    return FolderStorage(Path(str(place).removeprefix("file://")))


def storage_error(error: OSError, place: object) -> StorageError:
    """What the operating system said, with the place and what to do."""
    if error.errno == errno.ENOSPC:
        return StorageError(f"the disk that holds {place} is full. Free some space, or keep checkpoints elsewhere.")
    reason = error.strerror or str(error)
    return StorageError(f"checkpoints cannot be written to {place}: {reason}. Choose a folder that can be written.")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
