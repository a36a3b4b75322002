"""Contents of files and folders: what is there, and whether it still is. Reads only."""

from __future__ import annotations

import hashlib
import os
import stat as stat_module
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from trek.errors import OutsideError

LEFT_OUT = {".git", ".venv", "__pycache__"}
"""Folders that do not count as contents: tools create and remove what is in them."""


_MAX_FILES = 100_000


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


def digest_path(path: Path, *, left_out: Sequence[Path] = ()) -> str:
    """A checksum of a file or folder by its contents and the names inside, not by where it is; without `left_out`."""
    names = list(islice(_names(path, left_out=left_out), _MAX_FILES + 1))
    if len(names) > _MAX_FILES:
        raise OutsideError(f"{path} has more than {_MAX_FILES:,} files, which are too many to compare by content.")
    facts = [_facts(path, name) for name in sorted(names)]
    return digest_text(repr([(file.name, file.sha256) for file in facts]))


def digest_place(path: Path) -> str:
    """The same, also for what does not exist: that counts by its whole path."""
    return digest_path(path) if path.exists() else f"missing {path}"


def _names(root: Path, *, left_out: Sequence[Path] = ()) -> Iterator[str]:
    """Names of all files, relative to `root`, through links to folders; a folder that contains itself is left out."""
    if not root.is_dir():
        yield ""
        return
    entered = {os.path.realpath(path) for path in (root, *left_out)}
    for folder, inner, names in os.walk(root, followlinks=True):
        inner[:] = [name for name in inner if name not in LEFT_OUT and _is_new(os.path.join(folder, name), entered)]  # noqa: PTH118
        for name in names:
            yield os.path.relpath(os.path.join(folder, name), root)  # noqa: PTH118 - many files, pathlib is slow


def _is_new(folder: str, entered: set[str]) -> bool:
    real = os.path.realpath(folder)
    is_new = real not in entered
    entered.add(real)
    return is_new


def _facts(root: Path, name: str) -> FileFacts:
    path = root / name
    try:
        if not path.is_file():
            return _other_facts(path, name)
        with path.open("rb") as file:
            checksum = hashlib.file_digest(file, "sha256").hexdigest()
            stat = os.fstat(file.fileno())
    except OSError as error:
        raise OutsideError(f"{path} cannot be read: {error.strerror}.") from error
    return FileFacts(name, stat.st_size, stat.st_mtime_ns, checksum)


def _other_facts(path: Path, name: str) -> FileFacts:
    """A pipe, a socket or a device is never read, since that may not end; a broken link counts by where it leads."""
    stat = path.lstat()
    target = str(path.readlink()) if path.is_symlink() else ""
    return FileFacts(name, stat.st_size, stat.st_mtime_ns, digest_text(f"{stat_module.S_IFMT(stat.st_mode)} {target}"))
