"""What a process may put where its reader expects a small file."""

from __future__ import annotations

import os
import socket
from pathlib import Path

KINDS = ("pipe", "endless", "link", "dangling", "folder", "sparse", "socket")


def put(kind: str, path: Path) -> None:
    """Put something of this kind at `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "endless":
        path.symlink_to("/dev/zero")
    elif kind == "link":
        path.symlink_to("/etc/passwd")
    elif kind == "dangling":
        path.symlink_to("/nowhere/at/all")
    elif kind == "folder":
        path.mkdir()
    elif kind == "sparse":
        with path.open("wb") as file:
            file.truncate(2**42)
    else:
        assert kind == "socket"
        here = os.open(path.parent, os.O_RDONLY)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(f"/proc/self/fd/{here}/{path.name}")  # a socket's address is short
        os.close(here)
