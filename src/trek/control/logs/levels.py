"""The level of a log line, derived from its text, since processes write lines without levels. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}
"""As in `logging`; a line that names no level is `info`."""
_ALIASES = {"warn": "warning", "fatal": "critical"}
# Upper case near the start, as in most formats, or at the very start and followed by a colon.
_NAMED = re.compile(
    r"^.{0,60}?\b(DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL)\b|^\W*(?:trek: )?(warning|error):", re.S
)
_RAISED = re.compile(r"^([A-Za-z_][\w.]*)?(Error|Exception|Interrupt|Exit|InvalidHP)(:|$)")
_WARNED = re.compile(r"^.*\b[A-Za-z]*Warning: ")


def levels_of(lines: Iterable[str]) -> list[int]:
    """The level of each line; every line of a traceback is an error."""
    levels: list[int] = []
    in_traceback = False
    for line in lines:
        if line.lstrip().startswith("Traceback (most recent call last)"):
            in_traceback = True
        levels.append(LEVELS["error"] if in_traceback else _own_level(line))
        if in_traceback and _RAISED.match(line):
            in_traceback = False
    return levels


def name_of(level: int) -> str:
    """The name of the highest level that is not above `level`."""
    return next(name for name, value in reversed(LEVELS.items()) if value <= max(level, LEVELS["debug"]))


def _own_level(line: str) -> int:
    if _RAISED.match(line):
        return LEVELS["error"]
    if (found := _NAMED.match(line)) is not None:
        name = (found[1] or found[2]).lower()
        return LEVELS[_ALIASES.get(name, name)]
    return LEVELS["warning"] if _WARNED.match(line) else LEVELS["info"]
