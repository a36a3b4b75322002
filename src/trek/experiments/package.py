"""The user's model folder as one archive: packed reproducibly, and unpacked as untrusted input.

Knows nothing about experiments or where archives are stored.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import shutil
import stat
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock
from pathspec import GitIgnoreSpec

from trek.errors import InputError, StorageError
from trek.experiments.tar_members import CHUNK_BYTES, Members, open_archive

MAX_BYTES = 96 * 2**20
MAX_FILES = 20_000
IGNORE_FILES = (".trekignore", ".gitignore")
ALWAYS_IGNORED = (".git", ".venv", "__pycache__")


@dataclass(frozen=True)
class Package:
    """A packed folder. The same files give the same bytes, whenever and wherever they are packed."""

    data: bytes
    num_files: int
    num_bytes: int
    """The size of the files before compression."""

    @property
    def sha256(self) -> str:
        """The hash that names the archive."""
        return hashlib.sha256(self.data).hexdigest()


def pack(folder: Path, *, max_bytes: int = MAX_BYTES) -> Package:
    """Pack `folder` without what .trekignore or .gitignore excludes, and never .git, .venv or __pycache__."""
    if not folder.is_dir():
        raise InputError(f"the model folder {str(folder)!r} does not exist or is not a folder.")
    paths = _check_size(folder, sorted(_files(folder)), max_bytes=max_bytes)
    buffer, total = io.BytesIO(), 0
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0, compresslevel=6) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for path in paths:
            total += _add(tar, path, name=path.relative_to(folder).as_posix())
    return Package(buffer.getvalue(), num_files=len(paths), num_bytes=total)


def unpack(data: bytes, target: Path, *, max_bytes: int = MAX_BYTES) -> int:
    """Unpack into `target`, which must not exist; returns the number of files. Refuses what `pack` never produces."""
    try:
        with open_archive(data, max_bytes=max_bytes, max_members=MAX_FILES) as members:
            return _extract(members, target)
    except OSError as error:
        raise StorageError(f"cannot unpack into {str(target)!r}: {error.strerror}.") from error


def unpack_once(data: bytes, target: Path) -> None:
    """Unpack, unless another process of this machine has done so; wait while one is doing it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(target.with_suffix(".lock")):
        if not target.exists():
            partial = target.with_suffix(f".{os.getpid()}")
            unpack(data, partial)
            partial.rename(target)


def inspect(data: bytes, *, max_bytes: int = MAX_BYTES) -> tuple[int, int]:
    """The numbers of files and bytes in an archive; InputError for one that `unpack` would refuse."""
    if len(data) > max_bytes:
        raise InputError(f"the archive has {len(data)} bytes, over the limit of {max_bytes}.")
    with open_archive(data, max_bytes=max_bytes, max_members=MAX_FILES) as members:
        sizes = [member.size for member, _ in members if member.isfile()]
    return len(sizes), sum(sizes)


def _files(folder: Path) -> Iterator[Path]:
    spec = _ignore_spec(folder)
    for parent, folders, files in os.walk(folder):
        here = Path(parent).relative_to(folder)
        folders[:] = [name for name in folders if not _is_ignored(spec, here / name, is_folder=True)]
        for name in files:
            path = Path(parent) / name
            if not _is_ignored(spec, here / name, is_folder=False) and path.is_file():
                yield path


def _ignore_spec(folder: Path) -> GitIgnoreSpec:
    lines: list[str] = []
    for name in IGNORE_FILES:
        path = folder / name
        if path.is_file():
            lines += path.read_text(encoding="utf-8", errors="replace").splitlines()
    return GitIgnoreSpec.from_lines(lines)


def _is_ignored(spec: GitIgnoreSpec, path: Path, *, is_folder: bool) -> bool:
    if path.name in ALWAYS_IGNORED and is_folder:
        return True
    return spec.match_file(path.as_posix() + ("/" if is_folder else ""))


def _check_size(folder: Path, paths: list[Path], *, max_bytes: int) -> list[Path]:
    if len(paths) > MAX_FILES:
        raise InputError(
            f"the model folder {str(folder)!r} has {len(paths)} files, over the limit of {MAX_FILES}. "
            "Leave data out with a .trekignore file."
        )
    sizes = {path: path.stat().st_size for path in paths}
    total = sum(sizes.values())
    if total > max_bytes:
        largest = max(paths, key=lambda path: sizes[path]).relative_to(folder)
        raise InputError(
            f"the model folder {str(folder)!r} has {total / 2**20:.1f} MiB, over the limit of "
            f"{max_bytes / 2**20:.0f} MiB; the largest file is {largest}. Leave data out with a .trekignore file."
        )
    return paths


def _add(tar: tarfile.TarFile, path: Path, *, name: str) -> int:
    content = path.read_bytes()
    info = tarfile.TarInfo(name)
    info.size = len(content)
    info.mode = 0o755 if path.stat().st_mode & stat.S_IXUSR else 0o644
    tar.addfile(info, io.BytesIO(content))
    return len(content)


def _extract(members: Members, target: Path) -> int:
    target.mkdir(parents=True)
    count = 0
    for member, content in members:
        path = target / member.name
        if content is None:
            path.mkdir(parents=True, exist_ok=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            shutil.copyfileobj(content, file, CHUNK_BYTES)
        path.chmod(0o755 if member.mode & stat.S_IXUSR else 0o644)
        count += 1
    return count
