"""Paths: a file or a folder. One in the step's attempt is kept in the store; one elsewhere stays there.

Nothing is taken out of the attempt: a step may return a path twice, or a file beside the folder it lies in.
"""

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
        """Copy it into `folder` if it is in the attempt's folder, else refer to it."""
        path, attempt = _place(value), _attempt_of(folder).resolve()
        if not path.exists():
            raise InputError(f"the step returned the path {str(value)!r}, which does not exist. Create it first.")
        if path == attempt:
            raise InputError(f"the step returned the folder {str(value)!r} of its own results. Return a path in it.")
        if not path.is_relative_to(attempt):
            return {"external": str(path)}
        _settle_links(path, attempt=attempt)
        folder.mkdir(parents=True)
        _copy(path, folder / path.name)
        return {"name": path.name}

    def load(self, folder: Path, facts: dict[str, Any]) -> Any:
        """Where it is."""
        return self.path(folder, facts)

    def path(self, folder: Path, facts: dict[str, Any]) -> Path:
        """Where it is."""
        return Path(facts["external"]) if "external" in facts else folder / facts["name"]


def _place(path: Path) -> Path:
    """Where `path` is, without links on the way there; a link itself is kept, not followed."""
    absolute = Path(os.path.abspath(path))  # noqa: PTH100 - a link is kept, not followed
    return absolute.parent.resolve() / absolute.name


def _attempt_of(folder: Path) -> Path:
    """The attempt whose output goes to `folder`: parts of an output have folders inside the output's."""
    return next((parent for parent in folder.parents if parent.parent.name == "attempts"), folder.parent)


def _settle_links(root: Path, *, attempt: Path, around: tuple[Path, ...] = ()) -> None:
    """Let each link in `root` lead to the same contents from a copy of it, after the attempt has been removed.

    `around` are the folders whose links wait for those of `root`.
    """
    for link in [root, *root.rglob("*")] if root.is_dir() else [root]:
        if link.is_symlink() and link.exists():
            _settle(link, root=root, attempt=attempt, around=(*around, root))


def _settle(link: Path, *, root: Path, attempt: Path, around: tuple[Path, ...]) -> None:
    place, found = _place(link.parent / link.readlink()), link.resolve()
    if link != root and place.is_relative_to(root):
        _point(link, os.path.relpath(place, link.parent))
    elif not found.is_relative_to(attempt):
        _point(link, str(found if place.is_relative_to(attempt) else place))
    elif found in around or link.is_relative_to(found):
        raise InputError(f"the returned link {str(link)!r} leads to {str(found)!r}, which it lies in. Remove the link.")
    else:
        _settle_links(found, attempt=attempt, around=around)
        link.unlink()
        _copy(found, link)


def _point(link: Path, target: str) -> None:
    link.unlink()
    link.symlink_to(target)


def _copy(path: Path, new: Path) -> None:
    """A copy that shares its files' contents where the file system can link them; links in it stay links."""
    if path.is_symlink():
        new.symlink_to(path.readlink())
    elif path.is_dir():
        shutil.copytree(path, new, symlinks=True, copy_function=_copy_file)
    else:
        _copy_file(path, new)


def _copy_file(path: Path | str, new: Path | str) -> None:
    try:
        os.link(path, new)
    except OSError:  # another file system, or one without hard links
        shutil.copy2(path, new)
