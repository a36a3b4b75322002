"""Contents of files and folders: what is there, and whether it still is. Reads only."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from trek.errors import OutsideError

LEFT_OUT = {".git", ".venv", "__pycache__"}
"""Folders that do not count as contents: tools create and remove what is in them."""


class FileFacts(NamedTuple):
    """One file of an artefact; `name` is relative to its root, empty when the root is the file."""

    name: str
    num_bytes: int
    mtime_ns: int
    sha256: str


def take_inventory(root: Path) -> list[FileFacts]:
    """Every file under `root` with its checksum, in the order of their names."""
    return [_facts(root, name) for name in sorted(_names(root))]


def find_change(root: Path, files: Sequence[FileFacts]) -> str | None:
    """None if the files are as they were recorded, else what changed.

    A file of the same size and time counts as the same; one of the same size and another time is read again.
    """
    if not root.exists():
        return f"{root} no longer exists"
    present = set(_names(root))
    for file in files:
        if file.name not in present:
            return f"{root / file.name} no longer exists"
        stat = (root / file.name).stat()
        if stat.st_size != file.num_bytes:
            return f"{root / file.name} has {stat.st_size} bytes instead of {file.num_bytes}"
        if stat.st_mtime_ns != file.mtime_ns and _facts(root, file.name).sha256 != file.sha256:
            return f"{root / file.name} has changed"
    extra = present - {file.name for file in files}
    return f"{root / min(extra)} is new" if extra else None


def digest_text(text: str) -> str:
    """A checksum of `text`."""
    return hashlib.sha256(text.encode()).hexdigest()


def digest_path(path: Path) -> str:
    """A checksum of a file or folder by its contents and the names inside, not by where it is."""
    return digest_text(repr([(file.name, file.sha256) for file in take_inventory(path)]))


def _names(root: Path) -> Iterator[str]:
    if not root.is_dir():
        yield ""
        return
    for folder, inner, names in os.walk(root):
        inner[:] = [name for name in inner if name not in LEFT_OUT]
        for name in names:
            yield os.path.relpath(os.path.join(folder, name), root)  # noqa: PTH118 - many files, pathlib is slow


def _facts(root: Path, name: str) -> FileFacts:
    path = root / name
    try:
        with path.open("rb") as file:
            checksum = hashlib.file_digest(file, "sha256").hexdigest()
            stat = os.fstat(file.fileno())
    except OSError as error:
        raise OutsideError(f"{path} cannot be read: {error.strerror}.") from error
    return FileFacts(name, stat.st_size, stat.st_mtime_ns, checksum)
