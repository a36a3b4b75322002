"""Folders that exist while a process uses them: the first that needs one fills it, the others wait and read it.

The lock on the file beside a folder is exclusive while it is filled and shared while it is used. A lock ends with its
process, however that ends: the last user removes the folder, and what a killed one left is removed by the next.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import weakref
from collections.abc import Callable
from pathlib import Path

_LOCK = ".lock"
_COMPLETE = ".complete"


class UsedFolder:
    """One use of a folder, which ends with `close`, with this object, or with the process."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._close = weakref.finalize(self, _leave, path, lock, os.getpid())

    @classmethod
    def enter(cls, path: Path, fill: Callable[[Path], None]) -> UsedFolder:
        """Use the folder `path`, which `fill` makes complete if no other process has."""
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(path.parent)
        while True:
            lock = os.open(_lock_of(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                if _is_only_user(lock) and _is_locked_by(lock, path):
                    _make(path, fill)
                fcntl.flock(lock, fcntl.LOCK_SH)  # waits for the process that fills it
                if _is_locked_by(lock, path) and (path / _COMPLETE).exists():
                    return cls(path, lock)
            except BaseException:
                _leave(path, lock, os.getpid())
                raise
            os.close(lock)

    def close(self) -> None:
        """End the use; the last one removes the folder, of which what is mapped stays readable."""
        self._close()


def _make(path: Path, fill: Callable[[Path], None]) -> None:
    shutil.rmtree(path, ignore_errors=True)  # of a process that was killed
    path.mkdir()
    fill(path)
    (path / _COMPLETE).touch()


def _leave(path: Path, lock: int, owner: int) -> None:
    if os.getpid() != owner:  # a forked child shares the lock, and must not remove what its parent uses
        return
    if _is_only_user(lock) and _is_locked_by(lock, path):
        _remove(path)
    os.close(lock)


def _remove_abandoned(parent: Path) -> None:
    for file in parent.glob(f"*{_LOCK}"):
        path = file.with_name(file.name.removesuffix(_LOCK))
        try:
            lock = os.open(file, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:  # removed by its last user just now
            continue
        if _is_only_user(lock) and _is_locked_by(lock, path):
            _remove(path)
        os.close(lock)


def _remove(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
    _lock_of(path).unlink(missing_ok=True)


def _lock_of(path: Path) -> Path:
    return path.with_name(path.name + _LOCK)


def _is_only_user(lock: int) -> bool:
    """Whether the lock is exclusive now; a shared one that this use holds may be lost on the way."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_locked_by(lock: int, path: Path) -> bool:
    """Whether the file that is locked is the one beside `path`, and not one that was removed."""
    try:
        return os.fstat(lock).st_ino == _lock_of(path).stat().st_ino
    except FileNotFoundError:
        return False
