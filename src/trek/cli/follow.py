"""Following an experiment in the terminal: its logs, its progress, its result."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self

from trek.cli import render
from trek.cli.terminal import echo, echo_log, visible_log
from trek.client.models import ENDED
from trek.errors import NotFound, TrainingError

if TYPE_CHECKING:
    from rich.live import Live

    from trek.client.client import Client
    from trek.client.models import ExperimentDetails, LogLine, TrialRecord

POLL_S = 0.25


def follow(client: Client, experiment_id: int, *, to_stderr: bool = False) -> ExperimentDetails:
    """Print logs and progress until the experiment has ended or is paused; returns its details then."""
    with _Screen(to_stderr=to_stderr) as screen:
        cursor = 0
        while True:
            # Fetched before the lines, so that these include everything written before the experiment ended.
            details = client.experiment(experiment_id)
            for line in _lines(lambda after: client.experiment_logs(experiment_id, after=after, limit=5000), cursor):
                screen.print(prefix(details, line) + line.text)
                cursor = line.id
            screen.update(details)
            if details.state in (*ENDED, "paused"):
                return details
            time.sleep(POLL_S)


def _lines(fetch: Callable[[int], list[LogLine]], cursor: int) -> list[LogLine]:
    found: list[LogLine] = []
    while batch := fetch(found[-1].id if found else cursor):
        found += batch
    return found


def prefix(details: ExperimentDetails, line: LogLine) -> str:
    """Which trial and rank wrote a line; empty where there is only one."""
    parts = []
    if details.num_trials > 1 or details.searcher != "single":
        parts.append(f"trial {line.trial_id}")
    if any(trial.slots > 1 or trial.slot_range is not None for trial in details.trials) and line.rank >= 0:
        parts.append(f"rank {line.rank}")
    return f"[{' '.join(parts)}] " if parts else ""


def raise_for_end(details: ExperimentDetails) -> None:
    """Raise the error an experiment ended with. On a terminal without the traceback, which the log above ends with."""
    from trek.experiments.experiment import raise_for_end as raise_error

    try:
        raise_error(details)
    except TrainingError as error:
        if sys.stdout.isatty() and sys.stderr.isatty():
            error.traceback_text = ""
        raise


def show_end(client: Client, details: ExperimentDetails) -> None:
    """Show the result: the best trial and its metrics, and the best checkpoint."""
    best = next((t for t in details.trials if t.id == details.best_trial), None)
    echo(f"Experiment {details.id} {details.state}.")
    if best is not None:
        if details.num_trials > 1:
            echo(f"Best trial: {best.id} with {render.hparams(best.hparams)}")
        echo(f"Best {details.metric}: {render.number(details.best_metric)}")
        if best.latest_metrics:
            echo(f"Last validation: {_metrics(best.latest_metrics)}")
    show_best_checkpoint(client, details)


def show_best_checkpoint(client: Client, details: ExperimentDetails) -> None:
    """Show the experiment's best checkpoint and why it is; nothing without one."""
    try:
        found = client.best_checkpoint(details.id)
    except NotFound:
        return
    reason = f"{details.metric} {render.number(found.metrics.get(details.metric))}"
    if found.reason != "best_metric":
        reason = f"the newest, none has a {details.metric}"
    echo(f"Checkpoint: {found.uuid} of trial {found.trial_id} at {found.batches} batches, {reason}")
    echo(f"  {found.path}")


def _metrics(values: Mapping[str, float]) -> str:
    return "  ".join(f"{name} {render.number(value)}" for name, value in values.items())


class _Screen:
    """Log lines, and on a terminal a live view of the experiment below them."""

    def __init__(self, *, to_stderr: bool) -> None:
        self._to_stderr = to_stderr
        self._live: Live | None = None
        self._printed: dict[int, int] = {}
        self._noted: dict[int, str] = {}
        self._rungs: list[int] | None = None

    def __enter__(self) -> Self:
        stream = sys.stderr if self._to_stderr else sys.stdout
        if stream.isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(
                console=Console(file=stream), transient=True, redirect_stdout=False, redirect_stderr=False
            )
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def print(self, text: str) -> None:
        """Print one line of a log."""
        if self._live is not None:
            from rich.text import Text

            self._live.console.print(Text.from_ansi(visible_log(text)), soft_wrap=True)
        else:
            echo_log(text, err=self._to_stderr)

    def update(self, details: ExperimentDetails) -> None:
        """Show the progress of the experiment."""
        if self._live is not None:
            self._show(self._live, details)
            return
        for trial in details.trials:
            self._print_restart(trial)
            if trial.latest_metrics and self._printed.get(trial.id) != trial.batches:
                self._printed[trial.id] = trial.batches
                shown = f"{trial.batches} batches, {render.percent(trial.progress)}: {_metrics(trial.latest_metrics)}"
                self.print(f"trial {trial.id}: {shown}")

    def _print_restart(self, trial: TrialRecord) -> None:
        """Print why a trial waits after an error; on a terminal the live view shows it."""
        if trial.restarts and trial.waiting and self._noted.get(trial.id) != trial.waiting:
            self._noted[trial.id] = trial.waiting
            self.print(f"trial {trial.id} waits: {trial.waiting}")

    def _show(self, live: Live, details: ExperimentDetails) -> None:
        from trek.cli.live_table import MAX_ROWS, live_view

        if self._rungs is None:
            self._rungs = _rungs(details)
        rows = max(min(MAX_ROWS, live.console.height - 6), 1)
        live.update(live_view(details, rungs=self._rungs, max_rows=rows))


def _rungs(details: ExperimentDetails) -> list[int]:
    from trek.experiments.config import ExperimentConfig
    from trek.search import make_searcher

    config = ExperimentConfig.parse(details.config)
    return make_searcher(config.searcher, hyperparameters=config.hyperparameters, seed=0).rung_lengths
