"""Archives of model folders: files named by their sha256, and their rows."""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
from pathlib import Path

from sqlalchemy import select

from trek.client.models import ENDED
from trek.control.store import Store
from trek.control.tables import ArchiveTable, ExperimentRow
from trek.errors import InputError, StorageError
from trek.experiments.package import inspect
from trek.system.clock import Clock

_LOG = logging.getLogger(__name__)


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
        try:
            return (self._folder / f"{sha256}.tar.gz").read_bytes()
        except FileNotFoundError:
            raise StorageError(
                f"the archive {sha256!r} is in the database, but not in {str(self._folder)!r}. "
                "Copy it there from the home that the database was used with before."
            ) from None

    def check(self, *, last_place: str) -> None:
        """Raise InputError if archives that experiments still need are missing here; log those that none needs.

        A database may be used from another home than before; `last_place` says which that was, if it is known.
        """
        with self._store.reading() as session:
            known = set(session.scalars(select(ArchiveTable.sha256)))
            needed = set(session.scalars(select(ExperimentRow.archive).where(ExperimentRow.state.not_in(ENDED))))
        missing = {sha256 for sha256 in known if not (self._folder / f"{sha256}.tar.gz").is_file()}
        if not missing:
            return
        where = f"It was last used with {last_place}. " if last_place else ""
        found = f"{len(missing)} of {len(known)} archives of model code in the database are not in {self._folder}."
        if missing & needed:
            raise InputError(
                f"{found} Experiments that have not ended need {len(missing & needed)} of them. {where}"
                "Start the master with that home, or copy its archives and trials folders to this one."
            )
        _LOG.warning("%s %sTheir experiments can be looked at, but neither forked nor downloaded.", found, where)

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
