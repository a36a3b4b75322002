"""What a disk or folder refuses, as one StorageError with the place and a remedy."""

from __future__ import annotations

import errno
import getpass
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from trek.errors import StorageError

_FULL = {errno.ENOSPC, errno.EDQUOT}
_FULL_TEXTS = re.compile(
    r"No space left on device|Disk quota exceeded|database or disk is full|\d+ requested and \d+ written"
    r"|Not enough free space to write"
)
"""What libraries say that do not pass the system's error on: safetensors, SQLite, NumPy."""
_REFUSED = {
    errno.EACCES, errno.EROFS, errno.EPERM, errno.ENOTDIR, errno.ENOENT, errno.EISDIR, errno.EEXIST, errno.ELOOP,
}  # fmt: skip


def storage_error(error: OSError, place: object, *, remedy: str) -> StorageError:
    """`error`, raised while writing to `place`, for a person to read; `remedy` is for a place that is full."""
    if error.errno in _FULL:
        return StorageError(f"no space left in {place}. {remedy}")
    return StorageError(f"cannot write to {place}: {error.strerror or error}. {_remedy(error, otherwise=remedy)}")


def _remedy(error: OSError, *, otherwise: str) -> str:
    """Space is no remedy for a folder that may not be written, or is none."""
    where = f" {error.filename!r}" if isinstance(error.filename, str) else ""
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"Let the user {_user()} write to the folder{where}, or choose another place."
    if error.errno == errno.EROFS:
        return f"The file system of{where or ' the folder'} is read-only: choose another place."
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return f"There is a file at{where or ' the path'} or above it, where a folder is needed: choose another place."
    return otherwise


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user without a name, as in some containers
        return str(os.getuid())


def is_disk_full(error: BaseException) -> bool:
    """Whether `error`, or what caused it, is a full disk, in the words of whichever library met it."""
    if isinstance(error, OSError) and error.errno in _FULL:
        return True
    cause = error.__cause__ or error.__context__
    return _FULL_TEXTS.search(str(error)) is not None or (cause is not None and is_disk_full(cause))


@contextmanager
def storage_errors(place: object, *, remedy: str) -> Iterator[None]:
    """Turn a full disk, or a folder that cannot be written, into a StorageError; other errors pass as they are."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL | _REFUSED:
            raise
        raise storage_error(error, place, remedy=remedy) from error
