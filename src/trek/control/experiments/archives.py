"""Archives of model folders: files named by their sha256, and their rows."""

from __future__ import annotations

import hashlib
import os
import secrets
from pathlib import Path

from trek.control.store import Store
from trek.control.tables import ArchiveTable
from trek.errors import InputError, StorageError
from trek.experiments.package import inspect
from trek.world.clock import Clock


class Archives:
    """The archives in one folder."""

    def __init__(self, store: Store, *, folder: Path, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._folder = folder

    def put(self, data: bytes, *, sha256: str) -> None:
        """Store an archive. Storing it again changes nothing."""
        found = hashlib.sha256(data).hexdigest()
        if found != sha256:
            raise InputError(f"the archive's sha256 is {found}, not {sha256!r} as announced. Send it again.")
        num_files, _ = inspect(data)
        self._write(self._folder / f"{sha256}.tar.gz", data)
        with self._store.writing() as session:
            now_s = self._clock.now_s()
            session.merge(ArchiveTable(sha256=sha256, num_bytes=len(data), num_files=num_files, created_s=now_s))

    def get(self, sha256: str) -> bytes:
        """The bytes of an archive."""
        if not self.has(sha256):
            raise InputError(f"the archive {sha256!r} does not exist. Upload it first.")
        return (self._folder / f"{sha256}.tar.gz").read_bytes()

    def has(self, sha256: str) -> bool:
        """Whether the archive is stored."""
        with self._store.reading() as session:
            return session.get(ArchiveTable, sha256) is not None

    def _write(self, path: Path, data: bytes) -> None:
        partial = path.with_suffix(f".{os.getpid()}.{secrets.token_hex(4)}")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            partial.write_bytes(data)
            partial.replace(path)
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise StorageError(f"cannot store the archive in {str(self._folder)!r}: {error.strerror}.") from error
