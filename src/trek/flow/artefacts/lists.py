"""Lists of artefacts: what the parts of a map gave, as one value. Never on disk as a whole; each part is, by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trek.errors import InputError
from trek.flow.artefacts.base import ArtefactKind


class ListKind(ArtefactKind):
    """A list whose items are stored each for itself; the fact `parts` holds their records."""

    def accepts(self, value: Any) -> bool:
        """No value by itself: only the runner puts parts together."""
        return False

    def save(self, value: Any, folder: Path) -> dict[str, Any]:
        """Never called."""
        raise NotImplementedError

    def load(self, folder: Path, facts: dict[str, Any]) -> Any:
        """The parts' values."""
        return [part.load() for part in facts["parts"]]

    def path(self, folder: Path, facts: dict[str, Any]) -> Path:
        """There is none."""
        raise InputError("the results of a map have no path together. Give the map itself to a step.")
