"""What a terminal shows of a search that runs, and that nothing of it is shown elsewhere."""

from __future__ import annotations

import io
import os
import pty
import sys
import threading
from typing import Any

import pytest
from rich.console import Console

from trek.cli import render
from trek.cli.follow import follow
from trek.cli.live_table import headline, live_view, shown_trials, time_left
from trek.client.models import ExperimentDetails, LogLine, TrialRecord
from trek.experiments.config import ExperimentConfig

CONFIG = ExperimentConfig.parse(
    {
        "entrypoint": "m:T",
        "hyperparameters": {"lr": {"type": "log", "minval": -4, "maxval": -1}},
        "searcher": {
            "name": "asha",
            "metric": "error",
            "max_length": {"batches": 64},
            "max_trials": 20,
            "num_rungs": 3,
        },
    }
).normal_form()


def trial(number: int, *, state: str = "running", best: float | None = None, progress: float = 0.0) -> TrialRecord:
    fields: dict[str, Any] = {"state": state, "best_metric": best, "progress": progress, "length": {"batches": 64}}
    return TrialRecord(
        id=number, experiment_id=7, key=number, hparams={"lr": 0.01 * number}, seed=0, batches=0, created_s=0, **fields
    )


def details(*trials: TrialRecord, state: str = "running", progress: float = 0.25, **fields: Any) -> ExperimentDetails:
    fixed: dict[str, Any] = {"searcher": "asha", "metric": "error", "smaller_is_better": True, "state": state}
    return ExperimentDetails(
        id=7,
        name="e",
        progress=progress,
        created_s=0.0,
        config=CONFIG,
        archive="",
        trials=list(trials),
        **fixed,
        **fields,
    )


SEARCH = details(
    trial(1, best=0.5, progress=0.25),
    trial(2, state="completed", best=0.125, progress=1.0),
    trial(3, state="queued"),
    best_trial=2,
    best_metric=0.125,
    started_s=100.0,
)


def test_the_view_has_trials_rungs_the_best_and_the_rest_of_the_time() -> None:
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(live_view(SEARCH, rungs=[4, 16, 64]))
    lines = console.export_text().splitlines()
    assert lines[1].split()[:7] == ["1", "running", "16/64", "batches", "2/3", "0.5", "lr=0.01"]
    assert "0.125 best" in lines[2]
    assert "experiment 7 running, 1 running, 1 ended, best error 0.125" in lines[-1]
    assert "25%" in lines[-1]
    assert "left" in lines[-1]


@pytest.mark.parametrize("width", [80, 100, 120])
def test_ids_lengths_and_metrics_are_whole_in_any_usual_width(width: int) -> None:
    """With a long name and many hyperparameters, the metric and the trial's id used to be cut."""
    long = {"hparams": {f"a_rather_long_name_{i}": 0.123456789 for i in range(9)}, "best_metric": 0.123456}
    search = details(*(trial(number).model_copy(update=long) for number in (10_017, 10_018)), best_trial=10_017)
    search = search.model_copy(update={"metric": "validation_accuracy_of_the_whole_set"})
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(live_view(search, rungs=[4, 16, 64]))
    lines = console.export_text().splitlines()
    assert lines[1].split()[:7] == ["10017", "running", "0/64", "batches", "0/3", "0.123456", "best"]
    assert all(len(line) <= width for line in lines)


def test_a_trial_that_was_stopped_is_not_shown_as_complete() -> None:
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(live_view(details(trial(1, state="completed", progress=0.25), trial(2)), rungs=[4, 16, 64]))
    assert console.export_text().splitlines()[1].split()[:5] == ["1", "stopped", "16/64", "batches", "2/3"]


def test_what_is_nearly_done_is_not_100_percent() -> None:
    assert [render.percent(share) for share in (0.0, 0.29, 0.999, 1.0)] == ["0%", "29%", "99%", "100%"]


def test_time_left_is_what_the_share_so_far_took() -> None:
    assert time_left(SEARCH, now_s=110.0) == pytest.approx(30.0)
    assert time_left(details(progress=0.0, started_s=1.0), now_s=2.0) is None


def test_who_runs_and_who_leads_is_shown_when_not_all_fit() -> None:
    many = [trial(number, state="completed", best=float(number)) for number in range(1, 30)]
    chosen = shown_trials(details(*many, trial(30), best_trial=29), max_rows=4)
    assert [one.id for one in chosen] == [1, 2, 29, 30]


def test_a_wait_is_told_with_its_reason() -> None:
    waiting = trial(1, state="queued").model_copy(update={"waiting": "needs 4 slots, 2 free"})
    assert headline(details(waiting, state="queued")) == "experiment 7 waits: needs 4 slots, 2 free"


class FakeClient:
    """An experiment that runs for one look and has ended at the next."""

    def __init__(self) -> None:
        self.looks = [SEARCH, SEARCH.model_copy(update={"state": "completed", "progress": 1.0})]
        self.lines = [LogLine(id=1, trial_id=1, rank=0, run=1, time_s=0.0, text="hello [bold]")]

    def experiment(self, experiment_id: int) -> ExperimentDetails:
        return self.looks.pop(0)

    def experiment_logs(self, experiment_id: int, *, after: int, limit: int) -> list[LogLine]:
        return [line for line in self.lines if line.id > after]


def test_a_terminal_sees_the_table_under_the_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    leader, follower = pty.openpty()
    seen = bytearray()
    reader = threading.Thread(target=_drain, args=(leader, seen))
    reader.start()
    with os.fdopen(follower, "w") as terminal:
        monkeypatch.setattr(sys, "stdout", terminal)
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", "120")
        follow(FakeClient(), 7)  # type: ignore[arg-type]
    reader.join()
    os.close(leader)
    text = seen.decode()
    assert "[trial 1] hello [bold]" in text
    assert "16/64 batches" in text
    assert "best error 0.125" in text


def _drain(leader: int, seen: bytearray) -> None:
    try:
        while data := os.read(leader, 4096):
            seen.extend(data)
    except OSError:
        return  # the other side has closed


def test_without_a_terminal_there_are_only_lines(capsys: pytest.CaptureFixture[str]) -> None:
    follow(FakeClient(), 7)  # type: ignore[arg-type]
    assert capsys.readouterr().out == "[trial 1] hello [bold]\n"


def test_without_a_terminal_a_pause_before_a_restart_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    paused = {"state": "queued", "waiting": "pauses 2 s before restart 1 of 5: no network", "restarts": 1}
    look = details(trial(1).model_copy(update=paused))
    client = FakeClient()
    client.lines, client.looks = [], [look, look, look.model_copy(update={"state": "killed"})]
    follow(client, 7)  # type: ignore[arg-type]
    assert capsys.readouterr().out == "trial 1 waits: pauses 2 s before restart 1 of 5: no network\n"
