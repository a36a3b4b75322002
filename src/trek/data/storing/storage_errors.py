"""What a disk says when it cannot, as one error with a remedy."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trek.errors import StorageError

_FULL = {errno.ENOSPC, errno.EDQUOT}
_REFUSED = {errno.EACCES, errno.EROFS, errno.EPERM, errno.ENOTDIR, errno.ENOENT}


@contextmanager
def storage_errors(folder: Path, *, remedy: str) -> Iterator[None]:
    """Turn a full disk, or a folder that cannot be written, into a StorageError that names it."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StorageError(f"no space left in {folder}. {remedy}") from error
        if error.errno in _REFUSED:
            raise StorageError(f"cannot write to {folder}: {error.strerror}. {remedy}") from error
        raise
