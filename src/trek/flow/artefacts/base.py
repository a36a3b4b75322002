"""Artefact kinds: how a value that a step returned becomes files, and a value again. No kind uses pickle.

Contracts: a kind writes into the folder it is given, or only into its facts (small values), or refers to what the user
keeps elsewhere; nothing it writes names that folder, which may be moved before it is loaded. Equal values give equal
files and facts, since results are found again by their checksum. The same kind serves disk and shared memory: what can
be mapped is mapped when it is loaded, and may be loaded by several processes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any


class ArtefactKind(ABC):
    """One family of values. Stateless, and made without arguments."""

    @abstractmethod
    def accepts(self, value: Any) -> bool:
        """Whether `value` is of this kind; imports nothing heavy to find out."""

    @abstractmethod
    def save(self, value: Any, folder: Path) -> dict[str, Any]:
        """Write `value` into `folder`, which is created if it is needed; gives the facts that `load` needs, as JSON.

        The fact `external` names a path elsewhere that is the value itself.
        """

    def save_briefly(self, value: Any, folder: Path) -> dict[str, Any]:
        """The same for a folder in memory that is removed with the run: what only serves durability may be left out."""
        return self.save(value, folder)

    @abstractmethod
    def load(self, folder: Path, facts: dict[str, Any]) -> Any:
        """The value again, mapped rather than read where that is possible."""

    def path(self, folder: Path, facts: dict[str, Any]) -> Path:
        """The file or folder that is given to a command that takes the value."""
        return folder


def is_instance(value: Any, module: str, *names: str) -> bool:
    """Whether `value` is of one of the classes `names` of the package `module`, which need not be imported."""
    return is_subclass(type(value), module, *names)


def is_subclass(kind: type, module: str, *names: str) -> bool:
    """Whether `kind` is, or derives from, one of the classes `names` of the package `module`."""
    return any(one.__name__ in names and one.__module__.partition(".")[0] == module for one in kind.__mro__)
