"""Artefact kinds: how a value that a step returned becomes files, and a value again. No pickle in any of them.

A kind writes into a folder that is its own, or only into its facts (small values), or points at what the user keeps
elsewhere. It never decides where the folder lies: the same kind serves disk and shared memory, since what can be mapped
is mapped when it is loaded.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar


class ArtefactKind(ABC):
    """One family of values. Stateless."""

    name: ClassVar[str]

    @abstractmethod
    def accepts(self, value: Any) -> bool:
        """Whether `value` is of this kind; must not import anything heavy to find out."""

    @abstractmethod
    def save(self, value: Any, folder: Path) -> dict[str, Any]:
        """Write `value` into `folder` (create it, or leave it out), and give facts that `load` needs, as JSON.

        The fact `external` names a path outside that is the value itself.
        """

    def save_briefly(self, value: Any, folder: Path) -> dict[str, Any]:
        """The same for a folder in memory that ends with the run: a kind may leave out what only lasting needs."""
        return self.save(value, folder)

    @abstractmethod
    def load(self, folder: Path, facts: dict[str, Any]) -> Any:
        """The value again, mapped rather than read where that is possible."""

    def path(self, folder: Path, facts: dict[str, Any]) -> Path:
        """The file or folder that a command would be given."""
        return folder


def is_instance(value: Any, module: str, *names: str) -> bool:
    """Whether `value` is of one of the classes `names` of a package that need not be loaded."""
    return any(kind.__name__ in names and kind.__module__.partition(".")[0] == module for kind in type(value).__mro__)
