"""LentFolder: a folder with a checkpoint's files, read with the rights of the user whose trial wrote it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from trek.client.tar_stream import tar_stream


@dataclass(frozen=True)
class LentFolder:
    """A folder on this machine. For `rights` see `TrialStorage`."""

    path: Path
    rights: Callable[[], AbstractContextManager[None]]

    def has(self, name: str) -> bool:
        """Whether there is a file of this name."""
        with self.rights():
            return (self.path / name).is_file()

    @property
    def exists(self) -> bool:
        """Whether the folder is there."""
        with self.rights():
            return self.path.is_dir()

    def tar(self, *, only: str | None = None) -> Iterator[bytes]:
        """See `tar_stream`. Each part is read with the rights; the next one may be read by another thread."""
        parts = tar_stream(self.path, only=only)
        while True:
            with self.rights():
                part = next(parts, None)
            if part is None:
                return
            yield part
