"""TrialStorage: where the checkpoints of one trial lie, and that nothing outside of it is taken for one of them.

Trials report addresses, and the control plane serves and removes what they name, so an address counts only if it is
inside the trial's own storage: when it is reported, and again when it is used, since a link may be put there later.
Where the trial runs as another user, everything here is done with that user's rights: a link that takes the place of a
folder in between leads no further than the trial itself can go.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from trek.errors import InputError
from trek.experiments.checkpoint_address import open_uncached, remove_checkpoint
from trek.system.plain_files import remove_tree
from trek.system.urls import is_remote, local_path

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")


@dataclass(frozen=True)
class TrialStorage:
    """A folder or URL. What is below `root` is Trek's, and must not lead anywhere else."""

    root: str
    """The home, or the storage that the user chose."""
    inner: str
    """The trial's folder below it."""
    rights: Callable[[], AbstractContextManager[None]] = nullcontext
    """A block in which this thread touches files with the rights of the trial's user. See `file_rights`."""

    @property
    def address(self) -> str:
        """The folder or URL with the trial's checkpoints."""
        return f"{self.root}/{self.inner}"

    def check(self, address: str) -> None:
        """Raise InputError unless `address` is that of a checkpoint in this storage."""
        if not self.has(address):
            raise InputError(
                f"{address!r} is not a checkpoint of this trial: it must be a folder in {self.address!r}, and no link."
            )

    def has(self, address: str) -> bool:
        """Whether `address` is that of a checkpoint in this storage, and no link leads out of it."""
        parent, _, name = address.rpartition("/")
        if not _NAME.fullmatch(name):
            return False
        if is_remote(self.root) or is_remote(address):
            return parent == self.address
        own = str(local_path(self.address))  # compared as text: one folder has one address
        with self.rights():
            return parent == own and _is_direct(Path(address), root=local_path(self.root))

    def remove(self, address: str) -> None:
        """Remove one checkpoint. Missing files are ignored, and links are never followed."""
        self.check(address)
        with self.rights():
            remove_checkpoint(address)

    def remove_all(self) -> None:
        """Remove the whole folder of the trial."""
        with self.rights():
            if is_remote(self.root):
                remove_checkpoint(self.address)
            elif self._is_own_folder:
                remove_tree(local_path(self.address))

    def remove_unfinished(self) -> None:
        """Remove what processes of the trial left that were killed while they wrote. Call between its runs only."""
        with self.rights():
            if is_remote(self.root) or self._is_own_folder:
                open_uncached(self.address).remove_unfinished()

    @property
    def _is_own_folder(self) -> bool:
        return _is_direct(local_path(self.address), root=local_path(self.root))


def _is_direct(path: Path, *, root: Path) -> bool:
    """Whether no part of `path` below `root` is a link."""
    return path.resolve() == root.resolve() / path.relative_to(root)
