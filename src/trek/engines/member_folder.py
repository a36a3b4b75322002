"""MemberFolder: the folder through which a gang member and its watcher exchange files.

The member finds it in TREK_MEMBER_DIR. What the documents say is the business of those who write and read them.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trek.engines.agent import (
    ADDRESSES,
    ANSWER,
    ASKED,
    MAX_FILE_BYTES,
    MEMBER_DIR,
    NO_SHARED_DISK,
    OUTCOME,
    write_file,
)
from trek.errors import InputError
from trek.system.plain_files import open_plain

__all__ = ["ADDRESSES", "ANSWER", "ASKED", "MEMBER_DIR", "NO_SHARED_DISK", "OUTCOME", "MemberFolder"]


class MemberFolder:
    """One member's folder, for the member itself and for its watcher on the same machine."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ) -> MemberFolder:
        """The folder of this process, as an Engine gave it."""
        if MEMBER_DIR not in environ:
            raise InputError(f"{MEMBER_DIR} is not set: this process must be started by Trek, not by hand.")
        return cls(Path(environ[MEMBER_DIR]))

    def read(self, name: str, *, start: int = 0, size: int | None = None) -> bytes | None:
        """The file called `name`, or a part of it; None if there is none.

        The member owns the folder, and may put anything there: links, pipes and files that would fill the memory of the
        watcher count as none.
        """
        try:
            file = open_plain(self.path / name)
        except OSError:
            return None
        with file:
            if size is None and os.fstat(file.fileno()).st_size - start > MAX_FILE_BYTES:
                return None
            file.seek(start)
            return file.read(MAX_FILE_BYTES if size is None else size)

    def write(self, name: str, data: bytes) -> None:
        """Put the file called `name` there, whole or not at all."""
        write_file(str(self.path), name, data)

    def write_outcome(self, document: Mapping[str, Any]) -> None:
        """The outcome of this member."""
        self.write(OUTCOME, json.dumps(document).encode())

    def ask(self) -> None:
        """Ask the member for an answer; an answer to an earlier question is removed."""
        (self.path / ANSWER).unlink(missing_ok=True)
        with contextlib.suppress(FileExistsError):  # it was asked already, or put a link there
            os.close(os.open(self.path / ASKED, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600))

    @property
    def is_asked(self) -> bool:
        """Whether an answer of this member is requested."""
        return (self.path / ASKED).exists()

    def answer(self, document: Mapping[str, Any]) -> None:
        """Answer the request."""
        with contextlib.suppress(FileNotFoundError):  # the folder goes when nobody is left to read in it
            self.write(ANSWER, json.dumps(document).encode())
            (self.path / ASKED).unlink()
