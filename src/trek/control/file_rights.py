"""Touches files with the rights of another user of the system, on the calling thread alone.

A folder that a user can write to may hold a link wherever the control plane looks twice. So a control plane that runs
as root does nothing there as root: the kernel checks each step against the rights of that user, and what it creates
belongs to the user. Linux keeps these rights for each thread, as file servers need it: other threads stay root's, and
the user can neither signal nor trace the thread.

Within the block, do not start threads that stay (they inherit the rights), and do not touch the store.
"""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from trek.engines import OsUser
from trek.errors import InputError, OutsideError

_SETGROUPS = {"x86_64": 116, "aarch64": 159, "riscv64": 159, "ppc64le": 81, "s390x": 206}
"""The number of the system call: that of the C library would change all threads."""
_NO_CHANGE = 2**32 - 1
_libc = ctypes.CDLL(None, use_errno=True)


def check_file_rights() -> None:
    """InputError where a thread cannot take the rights of another user."""
    if platform.system() != "Linux" or platform.machine() not in _SETGROUPS:
        raise InputError(
            f"--run-as is not supported on {platform.system()} {platform.machine()}. "
            f"Use Linux on one of {', '.join(_SETGROUPS)}, or start the master without it."
        )


@contextmanager
def rights_of(user: OsUser | None) -> Iterator[None]:
    """In the block, this thread touches files with the rights of `user`; None changes nothing."""
    if user is None:
        yield
        return
    before = _exchange(_libc.setfsuid, _NO_CHANGE), _exchange(_libc.setfsgid, _NO_CHANGE), os.getgroups()
    try:
        _set(user.uid, user.gid, user.groups)
        yield
    finally:
        _set(*before)


def _set(uid: int, gid: int, groups: Sequence[int]) -> None:
    _set_groups(groups)
    for change, wanted in ((_libc.setfsgid, gid), (_libc.setfsuid, uid)):
        _exchange(change, wanted)
        if _exchange(change, _NO_CHANGE) != wanted:
            raise OutsideError(f"cannot touch files with the rights of user {uid}: this process must be root.")


def _exchange(change: Callable[[ctypes.c_uint], int], new: int) -> int:
    """Set an id and return the one before. These calls return no errors, and an invalid id changes nothing."""
    return change(ctypes.c_uint(new)) & _NO_CHANGE


def _set_groups(groups: Sequence[int]) -> None:
    numbers = (ctypes.c_uint * len(groups))(*groups)
    if _libc.syscall(ctypes.c_long(_SETGROUPS[platform.machine()]), ctypes.c_size_t(len(groups)), numbers) != 0:
        problem = os.strerror(ctypes.get_errno())
        raise OutsideError(f"cannot touch files with the rights of other groups: {problem}.")
