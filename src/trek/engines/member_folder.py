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

from trek.engines.agent import ANSWER, ASKED, MEMBER_DIR, OUTCOME
from trek.errors import InputError

__all__ = ["ANSWER", "ASKED", "MEMBER_DIR", "OUTCOME", "MemberFolder"]


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

    def read(self, name: str) -> bytes | None:
        """The file called `name`; None if there is none."""
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes) -> None:
        """Put the file called `name` there, whole or not at all."""
        partial = self.path / f".{name}.{os.getpid()}"
        partial.write_bytes(data)
        partial.replace(self.path / name)

    def write_outcome(self, document: Mapping[str, Any]) -> None:
        """The outcome of this member."""
        self.write(OUTCOME, json.dumps(document).encode())

    def ask(self) -> None:
        """Ask the member for an answer; an answer to an earlier question is removed."""
        (self.path / ANSWER).unlink(missing_ok=True)
        (self.path / ASKED).touch()

    @property
    def is_asked(self) -> bool:
        """Whether an answer of this member is requested."""
        return (self.path / ASKED).exists()

    def answer(self, document: Mapping[str, Any]) -> None:
        """Answer the request."""
        with contextlib.suppress(FileNotFoundError):  # the folder goes when nobody is left to read in it
            self.write(ANSWER, json.dumps(document).encode())
            (self.path / ASKED).unlink()
