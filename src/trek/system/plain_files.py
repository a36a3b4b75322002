"""Reads, writes and removes files where another process may have put a link, a pipe, or something that never ends.

The one way to what trials, and other processes that are not trusted, leave in their folders.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from pathlib import Path
from typing import BinaryIO

_HOW = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_MAX_DEPTH = 10_000
_OTHER_KINDS = {errno.ELOOP, errno.EMLINK, errno.ENXIO, errno.ENODEV, errno.EOPNOTSUPP, errno.EISDIR}
"""What the system says of links, sockets, devices and folders."""


class NotPlainFile(OSError):
    """Something else than a regular file, or a file that is larger than its reader takes."""


def open_plain(path: Path | str, *, dir_fd: int | None = None) -> BinaryIO:
    """The regular file at `path`, below the folder `dir_fd` if given; never waits, and follows no link at its end.

    NotPlainFile if it is anything else than a regular file; other OSErrors as from `open`.
    """
    try:
        descriptor = os.open(path, _HOW, dir_fd=dir_fd)
    except OSError as error:
        if error.errno in _OTHER_KINDS:
            raise _not_plain(path, "it is not a regular file") from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _not_plain(path, "it is not a regular file")
    return os.fdopen(descriptor, "rb")


def read_plain(path: Path | str, *, max_bytes: int) -> bytes:
    """The content of the regular file at `path`; NotPlainFile if it has more than `max_bytes`. See `open_plain`."""
    with open_plain(path) as file:
        data = file.read(max_bytes + 1) if os.fstat(file.fileno()).st_size <= max_bytes else None
    if data is None or len(data) > max_bytes:
        raise _not_plain(path, f"it has more than {max_bytes} bytes")
    return data


def _not_plain(path: Path | str, why: str) -> NotPlainFile:
    return NotPlainFile(errno.EINVAL, why, str(path))


def write_plain(path: Path, data: bytes) -> None:
    """Replace what is at `path` by a file with `data`, for its owner alone; whole or not at all."""
    partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(data)
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def open_folder(path: Path | str, *, dir_fd: int | None = None) -> int:
    """A descriptor of the folder at `path`; never waits. OSError if it is anything else, a link included."""
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=dir_fd)


def remove_tree(path: Path) -> None:
    """Remove the file, link or folder at `path`. Follows no link, waits for nothing; no error if a part stays.

    However deep it is: inner folders are moved up before they are emptied.
    """
    try:
        path.unlink()
    except FileNotFoundError:
        return
    except OSError:
        with contextlib.suppress(OSError):
            _empty(path)
            path.rmdir()


def _empty(path: Path) -> None:
    top = open_folder(path)
    try:
        before: list[str] = []
        for _ in range(_MAX_DEPTH):
            left = [name for name in os.listdir(top) if not _remove_file(name, top)]  # noqa: PTH208 - of a descriptor
            if not left or left == before:
                return
            for name in left:
                with contextlib.suppress(OSError):
                    _move_up(name, top)
            before = left
    finally:
        os.close(top)


def _move_up(name: str, top: int) -> None:
    """Remove the folder `name` in `top`, after its own folders were moved to `top`."""
    folder = open_folder(name, dir_fd=top)
    try:
        for inner in os.listdir(folder):  # noqa: PTH208 - of a descriptor
            if not _remove_file(inner, folder):
                os.rename(inner, f".removed-{secrets.token_hex(8)}", src_dir_fd=folder, dst_dir_fd=top)
    finally:
        os.close(folder)
    os.rmdir(name, dir_fd=top)


def _remove_file(name: str, folder: int) -> bool:
    """Whether `name` in `folder` was no folder, and is removed."""
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
