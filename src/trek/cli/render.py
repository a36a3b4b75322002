"""How commands print: JSON for programs, aligned columns for people."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from trek.cli.terminal import echo, echo_json, echo_lines, visible

if TYPE_CHECKING:
    from pydantic import BaseModel

    from trek.client.models import TrialRecord

MIN_WIDTH = 6
"""Columns are not cut below this while others are wider."""
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def show_json(value: BaseModel | Sequence[BaseModel]) -> None:
    """One object, or an array of objects."""
    items = [item.model_dump(mode="json") for item in value] if isinstance(value, Sequence) else None
    echo_json(value.model_dump(mode="json") if not isinstance(value, Sequence) else items, indent=2)


def show_done(text: str, *, as_json: bool, **fields: Any) -> None:
    """What a command did: a sentence, or `fields` as JSON."""
    if as_json:
        echo_json(fields)
    else:
        echo(text)


def show_fields(value: BaseModel, *, as_json: bool) -> None:
    """One object: as JSON, or a line for each field that has a value."""
    if as_json:
        show_json(value)
        return
    for name, field in value.model_dump().items():
        if field not in (None, "", {}, []):
            text = hparams(field) if isinstance(field, dict) else str(field)
            echo_lines(f"{name}: {text}" if name == "traceback" else f"{name}: {visible(text)}")


def show_table(rows: Sequence[Mapping[str, Any]], *, empty: str) -> None:
    """Aligned columns under their names; `empty` where there is nothing to show. A terminal's width is kept to."""
    if not rows:
        echo(empty)
        return
    names = list(rows[0])
    heads = [visible(name.upper()) for name in names]
    cells = [[_cell(row[name]) for name in names] for row in rows]
    widths = [max(len(head), *(len(row[i]) for row in cells)) for i, head in enumerate(heads)]
    if sys.stdout.isatty():
        widths = fit_widths(widths, total=shutil.get_terminal_size().columns)
    for line in [heads, *cells]:
        parts = [_cut(text, width).ljust(width) for text, width in zip(line, widths, strict=True)]
        echo("  ".join(parts).rstrip())


def fit_widths(widths: Sequence[int], *, total: int) -> list[int]:
    """Widths of columns with two spaces between them that fit into `total`: the widest give way first, ids last."""
    fitted = list(widths)
    while sum(fitted) + 2 * (len(fitted) - 1) > total:
        widest = max(range(len(fitted)), key=lambda i: (i > 0 and fitted[i] > MIN_WIDTH, fitted[i]))
        if fitted[widest] <= 1:
            break
        fitted[widest] -= 1
    return fitted


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def number(value: float | None) -> str:
    """A metric in a few digits."""
    return "-" if value is None else f"{value:.6g}"


def percent(fraction: float) -> str:
    """A fraction as a percentage, rounded down: only what is done is 100%."""
    return f"{int(100 * fraction + 1e-9)}%"


def ago(time_s: float | None) -> str:
    """How long ago a time was."""
    if time_s is None:
        return "-"
    seconds = max(time.time() - time_s, 0)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds / size:.0f}{unit} ago"
    return f"{seconds:.0f}s ago"


def size(num_bytes: int) -> str:
    """A number of bytes in a readable unit."""
    if num_bytes < 1000:
        return f"{num_bytes} B"
    return f"{num_bytes / 1000:.1f} KB" if num_bytes < 1_000_000 else f"{num_bytes / 1_000_000:.1f} MB"


def trial_state(trial: TrialRecord) -> str:
    """The state of a trial; `stopped` if it ended before its full length."""
    return "stopped" if trial.state == "completed" and trial.progress < 1 else trial.state


def count(number: int, noun: str) -> str:
    """A number and its noun, which takes an s unless there is one."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def hparams(values: Mapping[str, Any]) -> str:
    """Hyperparameters on one line."""
    return " ".join(f"{visible(str(key))}={_cell(value)}" for key, value in values.items())


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else visible(str(value))
