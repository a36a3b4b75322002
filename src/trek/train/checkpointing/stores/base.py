"""Storage: where finished checkpoints are kept. Each variant has its own file in this folder.

Contract: `publish` is atomic: a checkpoint appears completely or not at all. Readers ignore a folder without a
manifest, so a store without an atomic rename uploads the manifest last and deletes it first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

MANIFEST = "manifest.json"
REMEDY = "Free some space there, or choose another location for checkpoints."


class Storage(ABC):
    """A collection of checkpoints by name. Used by one thread at a time."""

    address: str
    """The folder or URL."""

    @classmethod
    @abstractmethod
    def open(cls, address: str) -> Storage:
        """The Storage at a folder or URL with the scheme of this variant; nothing is read or written yet."""

    def refresh(self) -> None:  # noqa: B027 - most variants cache nothing
        """Discard cached listings: other processes may have written since."""

    @abstractmethod
    def prepare(self) -> None:
        """Raise an error if the place is not writable, so that it is known before training starts."""

    @abstractmethod
    def workspace(self) -> Path:
        """A new local folder to write one checkpoint to."""

    @abstractmethod
    def publish(self, workspace: Path, name: str) -> str:
        """Make the files of `workspace` the checkpoint `name`; returns the address it can be read from.

        This may move the workspace; otherwise the caller removes it.
        """

    @abstractmethod
    def names(self) -> list[str]:
        """Checkpoints that have a manifest, in alphabetical order."""

    @abstractmethod
    def fetch(self, name: str, *, only: str | None = None) -> Path:
        """A local folder called `name` with the files of that checkpoint, or at least with the file `only`.

        Raises FileNotFoundError, or returns an empty folder, if there is no such checkpoint.
        """

    @abstractmethod
    def delete(self, name: str) -> None:
        """Remove `name`; no error if it does not exist."""

    def remove_unfinished(self) -> None:  # noqa: B027 - in some variants there is nothing to remove
        """Remove what processes left that were killed while they wrote or deleted. Call only when none writes here."""
