"""A folder as a tar that is made while it is sent, without a copy on disk or in memory."""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path

_CHUNK = 2**20
_PLAIN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
"""Opens no link, and does not wait for the other end of a pipe."""


def tar_stream(folder: Path, *, only: str | None = None) -> Iterator[bytes]:
    """The regular files of `folder`, or those called `only`, as the bytes of a tar.

    Files are opened below the folder's descriptor and without following links, so that a link which takes the place of
    a file or folder meanwhile leads nowhere.
    """
    top = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY)
    try:
        for root, folders, names, descriptor in os.fwalk(".", dir_fd=top):
            folders.sort()
            for name in sorted(names if only is None else {only}.intersection(names)):
                yield from _member(Path(root, name).as_posix(), name, folder=descriptor)
    finally:
        os.close(top)
    yield b"\0" * (2 * tarfile.BLOCKSIZE)


def _member(path: str, name: str, *, folder: int) -> Iterator[bytes]:
    try:
        descriptor = os.open(name, _PLAIN, dir_fd=folder)
    except OSError:  # a link, or removed meanwhile
        return
    with os.fdopen(descriptor, "rb") as file:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            return
        info = tarfile.TarInfo(path)
        info.size, info.mode = facts.st_size, 0o644
        yield info.tobuf(tarfile.PAX_FORMAT)
        left = info.size
        while left:
            part = file.read(min(left, _CHUNK)) or b"\0" * min(left, _CHUNK)  # it was cut meanwhile
            left -= len(part)
            yield part
    yield b"\0" * (-info.size % tarfile.BLOCKSIZE)
