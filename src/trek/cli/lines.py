"""`logs` commands: printing the lines of an experiment or a trial, once or as they are written."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from datetime import datetime
from datetime import time as clock
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from trek.cli import render
from trek.cli.connect import connect
from trek.cli.terminal import echo_json, echo_log

if TYPE_CHECKING:
    from trek.client.models import ExperimentDetails, LogLine

F = TypeVar("F", bound=Callable[..., Any])
POLL_S = 0.25
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


class Moment(click.ParamType[float]):
    """A date, a time of today, or how long ago; converted to seconds since 1970."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """From 2024-05-01, 2024-05-01T10:30, 10:30, 90s, 10m, 2h or 3d."""
        text = str(value).strip()
        if text[-1:] in _UNITS_S and text[:-1].replace(".", "", 1).isdigit():
            return time.time() - float(text[:-1]) * _UNITS_S[text[-1]]
        try:
            if "-" not in text:
                return datetime.combine(datetime.now().date(), clock.fromisoformat(text)).timestamp()
            return datetime.fromisoformat(text).timestamp()
        except (ValueError, OverflowError):
            self.fail(f"invalid time {text!r}. Use 2024-05-01T10:30, 10:30, or how long ago, such as 10m, 2h or 3d.")


def search_options(command: F) -> F:
    """Add the options that select lines; the command receives them as one `search`."""

    @functools.wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        search = {name: kwargs.pop(name) for name in ("text", "rank", "level", "since", "until")}
        return command(*args, search=search, **kwargs)

    levels = click.Choice(["debug", "info", "warning", "error", "critical"], case_sensitive=False)
    for option in (
        click.option("--until", type=Moment(), metavar="TIME", help="Only lines until this time."),
        click.option(
            "--since",
            type=Moment(),
            metavar="TIME",
            help="Only lines since this time, such as 10:30, or 10m for ten minutes ago.",
        ),
        click.option("--level", type=levels, help="Only lines of this level or a more severe one."),
        click.option("--rank", type=click.IntRange(min=0), help="Only lines of the process with this rank."),
        click.option("--grep", "text", help="Only lines that contain this text; case is ignored."),
    ):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[return-value]


def logs_command(noun: Literal["experiment", "trial"]) -> click.Command:
    """The command `logs` of experiments or of trials."""

    @click.command("logs", help=f"Print the log lines of {'an experiment' if noun == 'experiment' else 'a trial'}.")
    @click.argument("number", type=int, metavar=f"{noun.upper()}_ID")
    @click.option("-f", "--follow", "is_followed", is_flag=True, help=f"Print new lines until the {noun} has ended.")
    @click.option("--tail", type=click.IntRange(min=1), metavar="N", help="Only the last N lines.")
    @search_options
    @render.json_option
    @click.pass_obj
    def logs(obj: dict[str, Any], /, number: int, **options: Any) -> None:
        with connect(obj) as client:
            is_trial = noun == "trial"
            fetch: Callable[..., list[LogLine]] = client.trial_logs if is_trial else client.experiment_logs
            find: Callable[[int], Any] = client.trial if is_trial else client.experiment
            experiment_id = client.trial(number).experiment_id if is_trial else number
            _print_lines(
                functools.partial(fetch, number),
                state=lambda: find(number).state,
                details=client.experiment(experiment_id),
                **options,
            )

    return logs


def _print_lines(
    fetch: Callable[..., list[LogLine]],
    *,
    state: Callable[[], str],
    details: ExperimentDetails,
    is_followed: bool,
    tail: int | None,
    search: dict[str, Any],
    as_json: bool,
) -> None:
    """Print what `fetch` gives, when followed until `state` is final. Followed JSON is one object per line."""
    from trek.client.models import ENDED

    cursor, kept = 0, []
    is_first = True
    while True:
        has_ended = state() in ENDED  # before fetching, so that the last lines are included
        query: dict[str, Any] = {"tail": tail} if tail is not None and is_first else {"after": cursor, "limit": 5000}
        lines = fetch(**query, **search)
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

    if as_json:
        echo_json(line.model_dump(mode="json"))
    else:
        echo_log(prefix(details, line) + line.text)
