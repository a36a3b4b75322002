"""What commands print on the terminal: the only place that writes there, so that nothing reaches it raw.

Names, errors and logs come from servers, files and trials. Control characters in them could move the cursor, change the
title, forge lines or reverse the order of characters: they are shown as escapes, such as `\\x1b`, instead.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import click

_BIDI = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_UNSAFE = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029{_BIDI}\ud800-\udfff\ufeff\ufff9-\ufffb]")
_UNSAFE_IN_A_LINE = re.compile(f"[\t\n]|{_UNSAFE.pattern}")
_COLOUR = re.compile("(\x1b\\[[0-9;]{0,30}m)")
_RESET = "\x1b[0m"
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def visible(text: str) -> str:
    """`text` on one line, with everything that a terminal would act on as an escape."""
    return _UNSAFE_IN_A_LINE.sub(_escape, text)


def visible_lines(text: str) -> str:
    """Like `visible`, but line breaks and tabs stay."""
    return _UNSAFE.sub(_escape, text)


def visible_log(line: str) -> str:
    """A line that a trial wrote: its colours stay, and end with the line."""
    parts = _COLOUR.split(line)
    shown = "".join(part if at % 2 else visible(part).replace("\\t", "\t") for at, part in enumerate(parts))
    return shown + _RESET if len(parts) > 1 else shown


def echo(line: str = "", *, err: bool = False) -> None:
    """Print one line; a line break within it is shown as an escape."""
    click.echo(visible(line), err=err)


def echo_lines(text: str, *, err: bool = False) -> None:
    """Print text of several lines, such as YAML or a traceback."""
    click.echo(visible_lines(text), err=err)


def echo_log(line: str, *, err: bool = False) -> None:
    """Print a line of a log."""
    click.echo(visible_log(line), err=err)


def echo_json(value: Any, *, indent: int | None = None, default: Callable[[Any], Any] | None = None) -> None:
    """Print JSON in ASCII, in which everything else is escaped."""
    click.echo(json.dumps(value, indent=indent, default=default))


def confirm(question: str, *, err: bool = False) -> None:
    """Ask for a yes, on stderr if `err`; anything else ends the command."""
    click.confirm(visible(question), abort=True, err=err)


def _escape(found: re.Match[str]) -> str:
    character = found.group()
    code = ord(character)
    return _SHORT.get(character) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")
