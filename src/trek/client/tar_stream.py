"""A folder as a tar that is made while it is sent, without a copy on disk or in memory."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

from trek.system.plain_files import open_folder, open_plain

_CHUNK = 2**20


def tar_stream(folder: Path, *, only: str | None = None) -> Iterator[bytes]:
    """The regular files of `folder`, or those called `only`, as the bytes of a tar.

    Files are opened below the folder's descriptor and without following links, so that a link which takes the place of
    a file or folder meanwhile leads nowhere.
    """
    yield from _members(open_folder(folder), inside="", only=only)
    yield b"\0" * (2 * tarfile.BLOCKSIZE)


def _members(folder: int, *, inside: str, only: str | None) -> Iterator[bytes]:
    """The files of the folder of this descriptor, which is closed, and then those of its folders."""
    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda one: one.name)
        folders = [one.name for one in entries if one.is_dir(follow_symlinks=False)]
        for one in entries:
            if one.name not in folders and only in (None, one.name):
                yield from _member(f"{inside}{one.name}", one.name, folder=folder)
        for name in folders:
            try:
                inner = open_folder(name, dir_fd=folder)
            except OSError:  # closed, or removed meanwhile
                continue
            yield from _members(inner, inside=f"{inside}{name}/", only=only)
    finally:
        os.close(folder)


def _member(path: str, name: str, *, folder: int) -> Iterator[bytes]:
    try:
        file = open_plain(name, dir_fd=folder)
    except OSError:  # a link or a pipe, or removed meanwhile
        return
    with file:
        info = tarfile.TarInfo(path)
        info.size, info.mode = os.fstat(file.fileno()).st_size, 0o644
        yield info.tobuf(tarfile.PAX_FORMAT)
        left = info.size
        while left:
            part = file.read(min(left, _CHUNK)) or b"\0" * min(left, _CHUNK)  # it was cut meanwhile
            left -= len(part)
            yield part
    yield b"\0" * (-info.size % tarfile.BLOCKSIZE)
