"""Spill folders: on disk, each locked by the process that uses it, so that those of killed processes can be removed.

A lock ends with its process, however that ends, and is seen by processes in other containers on the same disk too,
where process ids mean nothing.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

_PREFIX = "trek-spill-"
_LOCK = ".lock"
_held: dict[Path, int] = {}


def new_spill_folder(parent: Path | None) -> Path:
    """A folder of this process in `parent`, by default where temporary files are; abandoned ones there are removed."""
    place = Path(tempfile.gettempdir()) if parent is None else parent
    _sweep(place)
    draft = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}", dir=place))  # not swept before it is locked
    lock = os.open(draft / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    folder = draft.rename(place / draft.name.removeprefix("."))
    _held[folder] = lock
    return folder


def remove_spill_folder(folder: Path) -> None:
    """Remove a folder and what is in it."""
    shutil.rmtree(folder, ignore_errors=True)
    if (lock := _held.pop(folder, None)) is not None:
        os.close(lock)


def _sweep(place: Path) -> None:
    for folder in place.glob(f"{_PREFIX}*"):
        try:
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
        except OSError:  # of another user, without a lock, or just removed
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except BlockingIOError:  # in use
            continue
        finally:
            os.close(lock)
