"""BaseTask: a script of a pipeline, and how it is started."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import ClassVar

from trek.errors import InputError

_PYTHON_NAMES = ("python", "python3")


class BaseTask:
    """Runs one script. Its command is what precedes the script's name."""

    default_command: ClassVar[str] = "python3"

    def __init__(self, name: str = "UNNAMED_TASK") -> None:
        self.name = name
        self.command = self.default_command
        self.script_path: str | None = None
        self.exec_path: str | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.command!r}, {self.script_path!r})"

    def set_command(self, command: str | None = None) -> None:
        """What to start the script with; without a command, the usual one of this kind of task."""
        self.command = command or self.default_command

    def set_script_path(self, script_path: str) -> None:
        """The script."""
        self.script_path = script_path

    def set_exec_path(self, exec_path: str | None) -> None:
        """The folder to run it in; None for the current one."""
        self.exec_path = exec_path

    def argv(self) -> list[str]:
        """The words of the command."""
        if self.script_path is None:
            raise InputError(f"task {self.name!r} has no script. Call set_script_path.")
        if not (Path(self.exec_path or ".") / self.script_path).is_file():
            raise InputError(f"task {self.name!r}: script {self.script_path!r} not found.")
        return [*self._program(), self.script_path]

    def _program(self) -> list[str]:
        words = shlex.split(self.command)
        return [sys.executable, *words[1:]] if words and words[0] in _PYTHON_NAMES else words
