"""Reads the members of an archive that anybody may have made: refuses what `pack` never produces, while reading.

tarfile reads the extended header of a name in one piece, however long it says it is, and follows chains of such headers
by recursion. So everything is read through a file that limits single reads and the whole.
"""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import IO, cast

from trek.errors import InputError

CHUNK_BYTES = 2**16
"""The most that is read at once: parts of files, and headers of long names."""
HEADER_BYTES = 2048
"""What the headers of a member may take on average."""
MAX_NAME_CHARS = 3000
MAX_PART_BYTES = 255


Members = Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]
"""Members in order, with their contents; None for a folder."""


@contextmanager
def open_archive(data: bytes, *, max_bytes: int, max_members: int) -> Iterator[Members]:
    """The members of a gzipped tar; InputError for what is not safe. Contents are read in parts of CHUNK_BYTES."""
    limit = max_bytes + (max_members + 2) * HEADER_BYTES
    try:
        with (
            gzip.GzipFile(fileobj=io.BytesIO(data)) as plain,
            tarfile.open(fileobj=cast(IO[bytes], _LimitedFile(plain, max_bytes=limit)), mode="r:") as tar,
        ):
            yield _members(tar, max_bytes=max_bytes, max_members=max_members)
    except (tarfile.TarError, EOFError, zlib.error, ValueError, RecursionError, OverflowError) as error:
        if isinstance(error, InputError):
            raise
        raise damaged(error) from None
    except OSError as error:
        if error.errno is not None:
            raise
        raise damaged(error) from None


def damaged(error: Exception) -> InputError:
    """What to tell about an archive that cannot be read."""
    return InputError(f"the archive of the model folder is damaged: {error}.")


class _LimitedFile(io.RawIOBase):
    """A file that refuses large reads, and reading beyond `max_bytes`."""

    def __init__(self, file: gzip.GzipFile, *, max_bytes: int) -> None:
        self._file = file
        self._max_bytes = max_bytes

    def read(self, size: int = -1) -> bytes:
        if size < 0 or size > CHUNK_BYTES:
            raise InputError(f"the archive has a header of {size} bytes, over the limit of {CHUNK_BYTES}.")
        self._check(self.tell() + size)
        return self._file.read(size)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._check(offset)
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def _check(self, end: int) -> None:
        if end > self._max_bytes:
            raise InputError(f"the archive unpacks to more than {self._max_bytes} bytes.")


def _members(tar: tarfile.TarFile, *, max_bytes: int, max_members: int) -> Members:
    total, files, folders = 0, set[PurePosixPath](), set[PurePosixPath]()
    for count, member in enumerate(tar):
        if tar.pax_headers:
            raise InputError("the archive has headers that apply to all files. Upload what `trek` packs.")
        path = _checked_path(member)
        if not files.isdisjoint((path, *path.parents)) or (member.isfile() and path in folders):
            raise InputError(f"the archive holds {member.name[:200]!r} in place of another one, or twice.")
        total += member.size
        if count >= max_members or total > max_bytes:
            raise InputError(f"the archive unpacks to more than {max_members} files and folders, or {max_bytes} bytes.")
        folders.update(path.parents)
        (files if member.isfile() else folders).add(path)
        yield member, tar.extractfile(member)


def _checked_path(member: tarfile.TarInfo) -> PurePosixPath:
    path, name = PurePosixPath(member.name), member.name
    if path.is_absolute() or ".." in path.parts or not path.parts or "\\" in name or "\0" in name:
        raise InputError(f"the archive holds {name[:200]!r}, which would be written outside its folder.")
    if not (member.isfile() or member.isdir()) or member.issparse():
        raise InputError(f"the archive holds {name[:200]!r}, which is not a regular file or folder.")
    if len(name) > MAX_NAME_CHARS or any(len(os.fsencode(part)) > MAX_PART_BYTES for part in path.parts):
        raise InputError(f"the archive holds {name[:200]!r}…, a name that is too long for a file.")
    if member.size < 0:
        raise InputError(f"the archive holds {name[:200]!r} with the size {member.size}.")
    return path
