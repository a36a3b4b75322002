"""Messages of a job's leader to the program that started it, while both run: progress bars and calls of loggers.

A message is a marked line of the leader's standard error, so it arrives from whatever machine the Engine uses, and in
order with everything else the leader prints.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

_MARK = "\x02trek "
"""Begins with a character that no text has, and at which no line is cut."""


def send_message(message: Mapping[str, Any]) -> None:
    """Send a JSON-serializable message to the program that started this process."""
    sys.stderr.write(f"{_MARK}{json.dumps(message)}\n")
    sys.stderr.flush()


def read_message(line: str) -> dict[str, Any] | None:
    """The message in a line of the leader's standard error; None if it is a line of text."""
    if not line.startswith(_MARK):
        return None
    message: dict[str, Any] = json.loads(line.removeprefix(_MARK))
    return message
