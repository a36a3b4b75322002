"""Printing log lines, once or as they come."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from trek.cli import render
from trek.client.models import ENDED

if TYPE_CHECKING:
    from trek.client.models import ExperimentDetails, LogLine

POLL_S = 0.25


def print_lines(
    fetch: Callable[..., list[LogLine]],
    *,
    state: Callable[[], str],
    details: ExperimentDetails,
    is_followed: bool,
    tail: int | None,
    text: str | None,
    rank: int | None,
    as_json: bool,
) -> None:
    """Print what `fetch` gives; when followed, until `state` is an end. Followed JSON is one object a line."""
    cursor, kept = 0, []
    is_first = True
    while True:
        has_ended = state() in ENDED  # asked first, so that the last lines are in what is fetched next
        query: dict[str, Any] = {"tail": tail} if tail is not None and is_first else {"after": cursor, "limit": 5000}
        lines = fetch(**query, text=text, rank=rank)
        is_first = False
        for line in lines:
            cursor = line.id
            if as_json and not is_followed:
                kept.append(line)
            else:
                _print(line, details=details, as_json=as_json)
        if not lines or tail is not None:
            if not is_followed or has_ended:
                break
            time.sleep(POLL_S)
    if as_json and not is_followed:
        render.show_json(kept)


def _print(line: LogLine, *, details: ExperimentDetails, as_json: bool) -> None:
    from trek.cli.follow import prefix

    click.echo(line.model_dump_json() if as_json else prefix(details, line) + line.text)
