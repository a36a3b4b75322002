"""Lists of artefacts: the results of the parts of a map, as one value. Only the parts are stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trek.errors import InputError
from trek.flow.artefacts.base import ArtefactKind


class ListKind(ArtefactKind):
    """A list whose items are stored separately; the fact `parts` holds their records."""

    def accepts(self, value: Any) -> bool:
        """No value: only the runner makes such lists."""
        return False

    def save(self, value: Any, folder: Path) -> dict[str, Any]:
        """Never called."""
        raise NotImplementedError

    def load(self, folder: Path, facts: dict[str, Any]) -> Any:
        """The parts' values."""
        return [part.load() for part in facts["parts"]]

    def path(self, folder: Path, facts: dict[str, Any]) -> Path:
        """There is none."""
        raise InputError("the results of a map have no common path. Pass the map itself to a step.")
