"""Checkpoints of training: a folder that stays where training wrote it, and is loaded as a Checkpoint again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trek.flow.artefacts.base import ArtefactKind, is_instance
from trek.flow.artefacts.paths import PathKind


class CheckpointKind(ArtefactKind):
    """A `trek.Checkpoint`, kept as its folder."""

    def accepts(self, value: Any) -> bool:
        """Whether it is Trek's Checkpoint."""
        return is_instance(value, "trek", "CheckpointFolder")

    def save(self, value: Any, folder: Path) -> dict[str, Any]:
        """Move its folder into the store, or refer to it."""
        return PathKind().save(Path(value.path), folder)

    def load(self, folder: Path, facts: dict[str, Any]) -> Any:
        """The Checkpoint there."""
        from trek import Checkpoint

        return Checkpoint(self.path(folder, facts))

    def path(self, folder: Path, facts: dict[str, Any]) -> Path:
        """The checkpoint's folder."""
        return PathKind().path(folder, facts)
