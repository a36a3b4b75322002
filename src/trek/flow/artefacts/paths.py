"""Paths: a file or a folder. One in the step's scratch folder is moved into the store; one elsewhere stays there."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from trek.errors import InputError
from trek.flow.artefacts.base import ArtefactKind


class PathKind(ArtefactKind):
    """A `Path`; a later step gets the `Path` where the file or folder then is."""

    def accepts(self, value: Any) -> bool:
        """Whether it is a path object; a str is just text."""
        return isinstance(value, Path)

    def save(self, value: Any, folder: Path) -> dict[str, Any]:
        """Move it into `folder` if it is in the attempt's folder, else refer to it."""
        path = Path(os.path.abspath(value))  # noqa: PTH100 - a link is kept, not followed
        if not path.exists():
            raise InputError(f"the step returned the path {str(value)!r}, which does not exist. Create it first.")
        if not path.is_relative_to(folder.parent):
            return {"external": str(path)}
        folder.mkdir(parents=True)
        shutil.move(path, folder / path.name)
        return {"name": path.name}

    def load(self, folder: Path, facts: dict[str, Any]) -> Any:
        """Where it is."""
        return self.path(folder, facts)

    def path(self, folder: Path, facts: dict[str, Any]) -> Path:
        """Where it is."""
        return Path(facts["external"]) if "external" in facts else folder / facts["name"]
