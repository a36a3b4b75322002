"""OwnFile: a file that this process made, told apart from another one that took its place later."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path


@dataclass(frozen=True)
class OwnFile:
    """A file by its path and number. A folder that was removed and made again holds another file at the same path.

    Keep the file open as long as this is used, since the number of a removed file may be given to the next one.
    """

    path: Path
    device: int
    inode: int

    @classmethod
    def of(cls, path: Path) -> OwnFile:
        """The file that is at `path` now."""
        facts = path.stat()
        return cls(path, facts.st_dev, facts.st_ino)

    def renamed(self, path: Path) -> OwnFile:
        """Move the file to `path`, replacing what is there."""
        self.path.replace(path)
        return replace(self, path=path)

    @property
    def is_there(self) -> bool:
        """Whether this very file is still at its path."""
        try:
            return OwnFile.of(self.path) == self
        except OSError:
            return False

    def remove(self) -> None:
        """Remove the file; one that took its place is left alone."""
        if self.is_there:
            self.path.unlink(missing_ok=True)
