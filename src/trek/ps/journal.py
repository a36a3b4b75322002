"""Journal: what was asked of a server since its last snapshot, so that a killed server comes back as it was.

A request is written before it is applied and answered. The system keeps what was written when the process dies; the
journal is not flushed to the disk every time, so the machine itself must not. A replica would survive that too, but
costs a second server and a message for every push; a journal costs a copy of the gradients.

The folder has `snapshot-n` and `journal-n`: what happened after snapshot n. Once a journal is larger than the state
itself (and than `least_bytes`), the next snapshot is written, so snapshots cost no more than the journal does.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from trek.ps.protocol import messages as pb
from trek.ps.protocol.frames import read_frame, write_frame
from trek.ps.protocol.tensors import Bytes

LEAST_BYTES = 1 << 30


class Journal:
    """The journal of one server. One thread at a time."""

    def __init__(self, folder: Path, *, least_bytes: int = LEAST_BYTES) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._least_bytes = least_bytes
        self._file: int | None = None
        self._num_bytes = 0
        self._number = self._last_complete()

    @property
    def snapshot(self) -> Path | None:
        """The snapshot that the journal goes on from; None = the beginning."""
        path = self._folder / f"snapshot-{self._number}"
        return path if self._number else None

    def replay(self, handle: Callable[[pb.Envelope, Bytes], None]) -> int:
        """Hand out every request that was written completely, and go on after the last; how many they were."""
        path = self._folder / f"journal-{self._number}"
        count = end = 0
        if path.exists():
            with path.open("rb") as file:
                while (frame := read_frame(file)) is not None:
                    handle(*frame)
                    count, end = count + 1, file.tell()
        self._open(end)
        return count

    def append(self, envelope: pb.Envelope, body: Bytes) -> None:
        """Write a request."""
        assert self._file is not None
        self._num_bytes += write_frame(self._file, envelope, body)

    def is_long(self, state_bytes: int) -> bool:
        """Whether it is time for a snapshot of a state of this size."""
        return self._num_bytes > max(self._least_bytes, state_bytes)

    def begin_anew(self, write: Callable[[Path], None]) -> None:
        """Write a snapshot with `write`, and an empty journal after it."""
        before, self._number = self._number, self._number + 1
        folder = self._folder / f"snapshot-{self._number}.partial"
        shutil.rmtree(folder, ignore_errors=True)
        write(folder)
        (self._folder / f"journal-{self._number}").unlink(missing_ok=True)
        folder.rename(folder.with_suffix(""))
        self._open(0)
        shutil.rmtree(self._folder / f"snapshot-{before}", ignore_errors=True)
        (self._folder / f"journal-{before}").unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open(self, end: int) -> None:
        """Append after `end`; what follows there was not written completely, and nobody was told it was done."""
        self.close()
        path = self._folder / f"journal-{self._number}"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        os.truncate(path, end)
        self._num_bytes = end

    def _last_complete(self) -> int:
        names = [path.name for path in self._folder.glob("snapshot-*") if not path.name.endswith(".partial")]
        return max((int(name.removeprefix("snapshot-")) for name in names), default=0)
