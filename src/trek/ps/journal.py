"""Journal: what was asked of a server since its last snapshot, so that a killed server comes back as it was.

A request is written before it is applied and answered. The system keeps what was written when the process dies; the
journal is not flushed to the disk every time, so the machine itself must not. A replica would survive that too, but
costs a second server and a message for every push; a journal costs a copy of the gradients.

The folder has `snapshot-n` and `journal-n`: what happened after snapshot n. Once a journal is larger than the state
itself (and than `least_bytes`), the next snapshot is written, so snapshots cost no more than the journal does.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from trek.errors import OutsideError
from trek.ps.journal_file import JournalFile
from trek.ps.protocol import messages as pb
from trek.ps.protocol.tensors import Bytes

LEAST_BYTES = 1 << 30


class Journal:
    """The journal of one server. One thread at a time."""

    def __init__(self, folder: Path, *, least_bytes: int = LEAST_BYTES) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._least_bytes = least_bytes
        self._file: JournalFile | None = None
        self._postponed_to = 0
        """The size at which a snapshot is tried again after one that could not be written."""
        self._number = self._last_complete()
        self._clean()

    @property
    def snapshot(self) -> Path | None:
        """The snapshot that the journal goes on from; None = the beginning."""
        path = self._folder / f"snapshot-{self._number}"
        return path if self._number else None

    def replay(self, handle: Callable[[pb.Envelope, Bytes], None]) -> int:
        """Hand out every request that was written completely, and go on after the last; how many they were."""
        self._file = JournalFile(self._path, number=self._number)
        return self._file.replay(handle)

    def append(self, envelope: pb.Envelope, body: Bytes) -> None:
        """Write a request. OutsideError if that is not possible; then it must not be applied."""
        assert self._file is not None
        self._file.append(envelope, body)

    def take_back(self) -> None:
        """Have the last request not written: it was not applied."""
        assert self._file is not None
        self._file.take_back()

    def is_long(self, state_bytes: int) -> bool:
        """Whether it is time for a snapshot of a state of this size."""
        assert self._file is not None
        return self._file.num_bytes > max(self._least_bytes, state_bytes, self._postponed_to)

    def begin_anew(self, write: Callable[[Path], None]) -> None:
        """Write a snapshot with `write`, and begin the journal after it, in the file of the one before.

        OutsideError if that is not possible: then everything is as before, and it is due again when the journal has
        grown by half.
        """
        assert self._file is not None
        folder = self._folder / f"snapshot-{self._number + 1}.partial"
        following = self._folder / f"journal-{self._number + 1}"
        begun: JournalFile | None = None
        try:
            shutil.rmtree(folder, ignore_errors=True)
            write(folder)
            with suppress(OSError):  # where there are no links, the next journal gets space of its own
                following.hardlink_to(self._path)
            begun = JournalFile(following, number=self._number + 1)
            folder.rename(folder.with_suffix(""))  # from here on, a server begins with the new one
        except (OSError, OutsideError) as error:
            self._postponed_to = self._file.num_bytes * 3 // 2
            if begun is not None:
                begun.close()
            following.unlink(missing_ok=True)
            shutil.rmtree(folder, ignore_errors=True)
            raise OutsideError(f"a snapshot for the journal {self._path} cannot be written: {error}") from error
        self._file.close()
        self._file, self._number, self._postponed_to = begun, self._number + 1, 0
        self._clean()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    @property
    def _path(self) -> Path:
        return self._folder / f"journal-{self._number}"

    def _last_complete(self) -> int:
        names = [path.name for path in self._folder.glob("snapshot-*") if not path.name.endswith(".partial")]
        return max((int(name.removeprefix("snapshot-")) for name in names), default=0)

    def _clean(self) -> None:
        """Remove what a process that was killed between two journals left."""
        for path in self._folder.glob("*-*"):
            if path.name not in (f"snapshot-{self._number}", f"journal-{self._number}"):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
