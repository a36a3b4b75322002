"""Archives of model folders, kept as files that are named by their content."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

from trek.control.store import Store
from trek.control.tables import ArchiveTable
from trek.errors import InputError, StorageError
from trek.experiments.package import inspect


class Archives:
    """A folder of archives, and their rows."""

    def __init__(self, store: Store, *, folder: Path) -> None:
        self._store = store
        self._folder = folder

    def put(self, data: bytes, *, sha256: str) -> None:
        """Keep an archive; keeping it twice is keeping it once."""
        found = hashlib.sha256(data).hexdigest()
        if found != sha256:
            raise InputError(f"the archive's sha256 is {found}, not {sha256!r} as announced. Send it again.")
        num_files, _ = inspect(data)
        self._write(self._folder / f"{sha256}.tar.gz", data)
        with self._store.writing() as session:
            row = ArchiveTable(sha256=sha256, num_bytes=len(data), num_files=num_files, created_s=time.time())
            session.merge(row)

    def get(self, sha256: str) -> bytes:
        """The archive's bytes."""
        if not self.has(sha256):
            raise InputError(f"there is no archive {sha256!r}.")
        return (self._folder / f"{sha256}.tar.gz").read_bytes()

    def has(self, sha256: str) -> bool:
        """Whether the archive is here."""
        with self._store.reading() as session:
            return session.get(ArchiveTable, sha256) is not None

    def _write(self, path: Path, data: bytes) -> None:
        partial = path.with_suffix(f".{os.getpid()}.{time.monotonic_ns()}")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            partial.write_bytes(data)
            partial.replace(path)
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise StorageError(f"cannot keep the archive in {str(self._folder)!r}: {error.strerror}.") from error
