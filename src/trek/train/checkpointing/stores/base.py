"""Storage: where finished checkpoints are kept. One file per kind of place beside this one.

Contract: `publish` makes a checkpoint appear whole or not at all. A folder without its manifest does not exist for
readers, so a store without an atomic rename uploads the manifest last and deletes it first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

MANIFEST = "manifest.json"
REMEDY = "Free some space there, or keep checkpoints in another place that can be written."


class Storage(ABC):
    """A place that holds checkpoints by name. Used by one thread at a time."""

    address: str
    """The folder or URL."""

    @classmethod
    @abstractmethod
    def open(cls, address: str) -> Storage:
        """The place at a folder or URL whose scheme is this variant's; nothing is read or written yet."""

    def refresh(self) -> None:  # noqa: B027 - most variants remember nothing
        """Forget what was listed earlier: other processes may have written since."""

    @abstractmethod
    def prepare(self) -> None:
        """Fail now, not after an hour of training, if nothing can be written here."""

    @abstractmethod
    def workspace(self) -> Path:
        """A fresh local folder to write one checkpoint into."""

    @abstractmethod
    def publish(self, workspace: Path, name: str) -> str:
        """Make the files of `workspace` the checkpoint `name`; gives the address it can be read from.

        The workspace may be gone afterwards; if not, the caller removes it.
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
