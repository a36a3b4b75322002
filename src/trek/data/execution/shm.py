"""Folders and files in shared memory, named for the process that made them, so that what a killed one left is found."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import uuid
from pathlib import Path

import psutil

_OWNER = re.compile(r"^trek-(\d+)-[0-9a-f]+")


def shared_root() -> Path:
    """Where files live in memory: /dev/shm, or the temporary folder where there is none."""
    shm = Path("/dev/shm")  # noqa: S108 - the kernel's own shared memory; names are unguessable and mode 0700
    return shm if os.access(shm, os.W_OK) else Path(tempfile.gettempdir())


def new_folder() -> Path:
    """A folder of this process in shared memory."""
    sweep()
    folder = shared_root() / f"trek-{os.getpid()}-{uuid.uuid4().hex[:12]}"
    folder.mkdir(mode=0o700)
    return folder


def is_own_folder(path: Path) -> bool:
    """Whether `path` is a folder that `new_folder` made, in this process or in another."""
    return path.parent == shared_root() and _OWNER.match(path.name) is not None


def sweep() -> None:
    """Remove what processes of this user left that are no longer alive."""
    for entry in shared_root().glob("trek-*"):
        match = _OWNER.match(entry.name)
        if match and not psutil.pid_exists(int(match[1])) and entry.stat().st_uid == os.getuid():
            shutil.rmtree(entry, ignore_errors=True)
