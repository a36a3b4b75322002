"""Checkpoints behind any URL that fsspec can open."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cached_property
from pathlib import Path
from typing import Any

from trek.distribution import install_command
from trek.errors import InputError, StorageError
from trek.system.disk import storage_error
from trek.train.checkpointing.stores.base import MANIFEST, REMEDY, Storage


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
                f"installed, such as s3:// after `{install_command('s3')}`."
            ) from error

    @classmethod
    def open(cls, address: str) -> RemoteStorage:
        """Any URL that fsspec supports."""
        return cls(address)

    def refresh(self) -> None:
        """Discard fsspec's cached listings."""
        self._files.invalidate_cache()

    def prepare(self) -> None:
        """Write and remove a test file."""
        probe = f"{self._root}/.probe"
        try:
            self._files.makedirs(self._root, exist_ok=True)
            self._files.pipe_file(probe, b"x")
            self._files.rm_file(probe)
        except OSError as error:
            raise storage_error(error, self.address, remedy=REMEDY) from error
        except Exception as error:  # every store has its own exceptions
            raise StorageError(
                f"cannot write to {self.address}: {str(error).rstrip('.')}. "
                "Check the URL and the credentials for its store."
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
        """Download missing files to a folder that is removed when this process ends."""
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
        """Delete the manifest first."""
        target = f"{self._root}/{name}"
        if self._files.exists(f"{target}/{MANIFEST}"):
            self._files.rm_file(f"{target}/{MANIFEST}")
        if self._files.exists(target):
            self._files.rm(target, recursive=True)

    def remove_unfinished(self) -> None:
        """What has no manifest yet, or none any more."""
        if not self._files.exists(self._root):
            return
        finished = self.names()
        for path in self._files.ls(self._root, detail=False):
            name = str(path).rstrip("/").split("/")[-1]
            if name not in finished and str(path).rstrip("/") != self._root:  # some stores list the place itself
                self._files.rm(path, recursive=True)
