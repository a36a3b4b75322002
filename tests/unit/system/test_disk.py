"""What a disk or folder refuses, in one sentence with a remedy that helps."""

from __future__ import annotations

import errno
import getpass
import os

import pytest

from trek.system.disk import storage_error

REMEDY = "Free some space."


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (errno.EACCES, f"Permission denied. Let the user {getpass.getuser()} write to the folder '/x/y', or choose"),
        (errno.EROFS, "Read-only file system. The file system of '/x/y' is read-only: choose another place."),
        (errno.EEXIST, "File exists. There is a file at '/x/y' or above it, where a folder is needed"),
        (errno.EIO, "Input/output error. Free some space."),
    ],
)
def test_space_is_the_remedy_only_where_it_may_be_missing(code: int, words: str) -> None:
    error = storage_error(OSError(code, os.strerror(code), "/x/y"), "/x/y", remedy=REMEDY)
    assert f"cannot write to /x/y: {words}" in str(error)


def test_a_full_disk_is_told_as_such() -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/x/y")
    assert str(storage_error(full, "/x", remedy=REMEDY)) == "no space left in /x. Free some space."
