"""The live view of a running experiment on a terminal: a line of progress and, for a search, a table of trials."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trek.cli import render
from trek.cli.terminal import visible
from trek.client.models import ENDED

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

    from trek.client.models import ExperimentDetails, TrialRecord

MAX_ROWS = 12
_MAX_NAME, _MIN_HPARAMS = 12, 8
_ORDER = ("running", "queued", "paused", "completed", "errored", "killed")


def live_view(details: ExperimentDetails, *, rungs: Sequence[int] = (), max_rows: int = MAX_ROWS) -> RenderableType:
    """The line and the table; `rungs` are the lengths at which the searcher stops trials."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    line = Table.grid(padding=(0, 1))
    bar = ProgressBar(total=1.0, completed=details.progress, width=24)
    line.add_row(Text(visible(headline(details))), bar, _percent_and_rest(details))
    if details.searcher == "single":
        return line
    return Group(TrialTable(details, rungs, max_rows), line)


def headline(details: ExperimentDetails) -> str:
    """The state of an experiment in one line."""
    running = sum(trial.state == "running" for trial in details.trials)
    waiting = next((trial.waiting for trial in details.trials if trial.waiting), "")
    if running == 0 and waiting:
        return f"experiment {details.id} waits: {waiting}"
    ended = sum(trial.state in ENDED for trial in details.trials)
    trials = f", {running} running, {ended} ended" if details.searcher != "single" else ""
    best = f", best {details.metric} {render.number(details.best_metric)}" if details.best_metric is not None else ""
    return f"experiment {details.id} {details.state}{trials}{_workers(details)}{best}"


def _workers(details: ExperimentDetails) -> str:
    """How many workers train, where that changes."""
    counts = [trial.num_workers for trial in details.trials if trial.num_workers is not None]
    return f", {render.count(sum(counts), 'worker')}" if counts else ""


def time_left(details: ExperimentDetails, *, now_s: float) -> float | None:
    """Estimated seconds at the speed so far; None before there is any progress."""
    if details.started_s is None or details.progress <= 0 or details.state in ENDED:
        return None
    return max(now_s - details.started_s, 0.0) * (1 - details.progress) / details.progress


def shown_trials(details: ExperimentDetails, *, max_rows: int) -> list[TrialRecord]:
    """The best trial and the running ones, then the others by their metric."""
    sign = 1 if details.smaller_is_better else -1

    def rank(trial: TrialRecord) -> tuple[Any, ...]:
        value = trial.best_metric
        is_first = trial.id == details.best_trial or trial.state == "running"
        return (not is_first, value is None, sign * (value or 0.0), _ORDER.index(trial.state), trial.id)

    return sorted(sorted(details.trials, key=rank)[:max_rows], key=lambda trial: trial.id)


@dataclass(frozen=True)
class TrialTable:
    """The table of trials, made for the width of the console: ids and metrics are whole, hyperparameters are cut."""

    details: ExperimentDetails
    rungs: Sequence[int]
    max_rows: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        from rich.table import Table
        from rich.text import Text

        shown = shown_trials(self.details, max_rows=self.max_rows)
        names = ["trial", "state", "length", *(["rung"] if self.rungs else []), self.details.metric, "hyperparameters"]
        rows = [_cells(self.details, trial, self.rungs) for trial in shown]
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name, width in zip(names, _widths(names, rows, total=options.max_width), strict=True):
            table.add_column(Text(visible(name)), no_wrap=True, overflow="ellipsis", width=width)
        for trial, row in zip(shown, rows, strict=True):
            table.add_row(*map(Text, row), style="green" if trial.id == self.details.best_trial else "")
        hidden = len(self.details.trials) - len(shown)
        if hidden:
            table.add_row("…", f"{hidden} more")
        yield table


def _widths(names: Sequence[str], rows: Sequence[Sequence[str]], *, total: int) -> list[int]:
    """The width of each column: what its values need, at most 12 for a name, and for the last one what is left."""
    *needed, last = [max([len(row[i]) for row in rows] + [min(len(name), _MAX_NAME)]) for i, name in enumerate(names)]
    left = total - sum(needed) - 2 * len(needed)
    return [*needed, max(min(last, left), _MIN_HPARAMS)]


def _cells(details: ExperimentDetails, trial: TrialRecord, rungs: Sequence[int]) -> list[str]:
    unit, target = next(iter(trial.length.items()))
    reached = round(trial.progress * target)
    rung = [f"{sum(rung <= reached for rung in rungs)}/{len(rungs)}"] if rungs else []
    mark = " best" if trial.id == details.best_trial else ""
    best = render.number(trial.best_metric) + mark
    return [
        str(trial.id),
        render.trial_state(trial),
        f"{reached}/{target} {unit}",
        *rung,
        best,
        render.hparams(trial.hparams),
    ]


def _percent_and_rest(details: ExperimentDetails) -> str:
    left_s = time_left(details, now_s=time.time())
    return render.percent(details.progress) + (f", {_clock(left_s)} left" if left_s is not None else "")


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
