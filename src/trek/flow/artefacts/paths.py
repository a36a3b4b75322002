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
        attempt = _attempt_of(folder)
        if not path.is_relative_to(attempt):
            return {"external": str(path)}
        for link in [path, *path.rglob("*")] if path.is_dir() else [path]:
            if link.is_symlink():
                _keep_target(link, root=path, attempt=attempt)
        folder.mkdir(parents=True)
        shutil.move(path, folder / path.name)
        return {"name": path.name}

    def load(self, folder: Path, facts: dict[str, Any]) -> Any:
        """Where it is."""
        return self.path(folder, facts)

    def path(self, folder: Path, facts: dict[str, Any]) -> Path:
        """Where it is."""
        return Path(facts["external"]) if "external" in facts else folder / facts["name"]


def _attempt_of(folder: Path) -> Path:
    """The attempt whose output goes to `folder`: parts of an output have folders inside the output's."""
    return next((parent for parent in folder.parents if parent.parent.name == "attempts"), folder.parent)


def _keep_target(link: Path, *, root: Path, attempt: Path) -> None:
    """Let a link lead to the same contents after `root` has been moved and the rest of the attempt removed."""
    target = link.parent / link.readlink()
    real = Path(os.path.abspath(target))  # noqa: PTH100 - links on the way are kept
    if not real.is_relative_to(attempt) or not target.exists():
        return
    if link != root and real.is_relative_to(root):
        if link.readlink().is_absolute():
            link.unlink()
            link.symlink_to(os.path.relpath(real, link.parent))
        return
    found = target.resolve()
    link.unlink()
    if found.is_dir():
        shutil.copytree(found, link, symlinks=True)
    else:
        shutil.copy2(found, link)
