"""Nothing that servers, files or trials wrote reaches the terminal raw: no control characters, no forged lines."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

import trek.cli
from trek.cli import experiment, render
from trek.cli.follow import _Screen, prefix, show_end
from trek.cli.lines import _print
from trek.cli.listing import Listing
from trek.cli.live_table import live_view
from trek.cli.main import _show
from trek.cli.terminal import confirm, echo, echo_lines, visible, visible_lines, visible_log
from trek.client import models
from trek.client.flow_models import FlowRun, FlowSummary
from trek.errors import NotFound, TrainingError

ATTACKS = [
    "\x1b]0;owned\x07", "\x1b[2J", "\x9b31m", "a\nexperiment 99 completed\r", "\u202etxt.exe", "[red]x[/red]", "[/]",
    "\x1b[31mred\x1b[0m", "\x1b[31;1H", "\ud800", "\x00", "\x7f", "\u2028", "\x85", "\x1bP", "\b\b\b", "\x0c",
]  # fmt: skip
TEXT = st.sampled_from(ATTACKS) | st.text(st.characters(exclude_categories=()), max_size=12)
UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\u200e\u200f\u061c\ud800-\udfff]"
)
SENT = TEXT.filter(lambda text: not any("\ud800" <= one <= "\udfff" for one in text))
"""What a record may hold: no JSON can carry a surrogate to a client."""
PLAIN = Listing(where=None, sort=None, limit=None, as_json=False, as_csv=False)


def printed(act: Callable[[], object]) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        act()
    return out.getvalue()


def experiment_of(text: str) -> models.ExperimentDetails:
    trial = models.TrialRecord.model_construct(
        id=1, experiment_id=1, key=0, state="running", hparams={text: text, "n": {text: [text]}}, seed=1, progress=0.5,
        batches=3, length={"batches": 9}, slots=1, restarts=1, run=1, best_metric=0.5, latest_metrics={text: 0.5},
        checkpoint=None, waiting=text, error=text, traceback=text, failure="", created_s=1.0, started_s=None,
        ended_s=None,
    )  # fmt: skip
    return models.ExperimentDetails.model_construct(
        id=1, name=text, description=text, state="running", progress=0.5, metric=text, smaller_is_better=True,
        searcher="random", hyperparameters={text: text}, best_metric=0.5, best_trial=1, best_hparams={}, num_trials=2,
        labels=[text], owner=text, is_archived=False, parent=None, error=text, failure="", created_s=1.0, started_s=1.0,
        ended_s=None, config={"name": text, text: [text]}, archive="", provenance={}, trials=[trial, trial],
        warnings=[text],
    )  # fmt: skip


def rows_of(text: str) -> list[tuple[str, Any]]:
    """For each list command, its file and a record."""
    made = experiment_of(text)
    run = FlowRun.model_construct(
        id=text, flow=text, state=text, owner=text, params={}, source=text, started_s=1.0, ended_s=2.0,
        num_steps={text: 1}, error=text,
    )  # fmt: skip
    checkpoint = models.CheckpointRecord.model_construct(
        uuid=text, batches=1, path=text, num_bytes=1, metrics={text: 1.0}, time_s=1.0, trial_id=1, experiment_id=1
    )
    version = models.ModelVersion.model_construct(number=1, checkpoint=text, notes=text, created_s=1.0)
    return [
        ("experiment", made),
        ("trial", made.trials[0]),
        ("checkpoint", checkpoint),
        ("model", models.RegisteredModel.model_construct(
            name=text, description=text, owner=text, created_s=1.0, versions=[version])),
        ("template", models.Template.model_construct(name=text, config={text: 1}, owner=text, created_s=1.0, error="")),
        ("token", models.Token.model_construct(id=1, description=text, created_s=1.0, expires_s=2.0, token="")),
        ("user", models.User.model_construct(name=text, role=text, is_active=True, created_s=1.0)),
        ("job", models.Job.model_construct(trial_id=1, experiment_id=1, name=text, state=text, slots=1, priority=1,
                                           weight=1.0, waiting=text)),
        ("flow_list", run),
    ]  # fmt: skip


class NoCheckpoints:
    """A client of a control plane that has no checkpoint."""

    def best_checkpoint(self, experiment_id: int) -> Any:
        raise NotFound("none.")


@pytest.mark.parametrize("text", ATTACKS)
def test_text_with_control_characters_is_shown_as_escapes(text: str) -> None:
    # Names and logs were printed raw: they cleared the screen, set the title and forged lines.
    for shown in (visible(text), visible_lines(text)):
        assert not UNSAFE.search(shown)
    assert visible("a\nb\x1b[2J\u202e") == "a\\nb\\x1b[2J\\u202e"
    assert visible("Zoë 走る 🚀 [red]") == "Zoë 走る 🚀 [red]"


@settings(max_examples=60, deadline=None)
@given(text=SENT)
def test_tables_have_one_clean_line_for_each_row(text: str) -> None:
    for module, record in rows_of(text):
        row = importlib.import_module(f"trek.cli.{module}")._row
        out = printed(lambda record=record, row=row: PLAIN.show([record, record], row=row, empty=""))  # type: ignore[misc]
        assert not UNSAFE.search(out), module
        assert out.count("\n") == 3, module
        assert "\t" not in out
    summary = FlowSummary.model_construct(name=text, num_runs=1, last_run=rows_of(text)[-1][1])
    row = importlib.import_module("trek.cli.flow_list")._summary_row
    assert not UNSAFE.search(printed(lambda: PLAIN.show([summary], row=row, empty="")))


@settings(max_examples=60, deadline=None)
@given(text=SENT)
def test_descriptions_and_endings_are_clean(text: str) -> None:
    made = experiment_of(text)
    client: Any = NoCheckpoints()
    acts: list[Callable[[], object]] = [
        lambda: experiment._describe(client, made),
        lambda: show_end(client, made),
        lambda: render.show_fields(made.trials[0], as_json=False),
        lambda: echo(f"Created {text}"),
        lambda: echo_lines(text),
        lambda: _show(TrainingError(text, traceback_text=text)),
    ]
    for act in acts:
        assert not UNSAFE.search(printed(act))


@given(text=SENT)
def test_json_is_ascii(text: str) -> None:
    made = experiment_of(text)
    out = printed(lambda: render.show_json([made]))
    assert out.isascii()
    assert not UNSAFE.search(out)
    assert json.loads(out)[0]["name"] == text
    line = models.LogLine.model_construct(id=1, trial_id=1, rank=0, run=1, time_s=1.0, level="info", text=text)
    out = printed(lambda: _print(line, details=made, as_json=True))
    assert out.isascii()
    assert json.loads(out)["text"] == text


@given(text=SENT)
def test_a_log_line_is_one_line_that_keeps_only_colours(text: str) -> None:
    made = experiment_of("x")
    line = models.LogLine.model_construct(id=1, trial_id=1, rank=0, run=1, time_s=1.0, level="info", text=text)
    shown = visible_log(prefix(made, line) + text)
    rest = re.sub("\x1b\\[[0-9;]*m", "", shown)
    assert not UNSAFE.search(rest)
    assert "\n" not in rest
    out = printed(lambda: _print(line, details=made, as_json=False))
    assert out.count("\n") == 1


def test_colours_of_a_log_stay_and_end_with_the_line() -> None:
    assert visible_log("\x1b[1;31mred") == "\x1b[1;31mred\x1b[0m"
    assert visible_log("\x1b[31;1H\tx") == "\\x1b[31;1H\tx"


@settings(max_examples=40, deadline=None)
@given(text=SENT)
def test_the_live_view_is_clean(text: str) -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100, color_system=None, legacy_windows=False)
    console.print(live_view(experiment_of(text), rungs=[3]))
    assert not UNSAFE.search(re.sub("\x1b\\[[0-9;]*m", "", out.getvalue()))
    screen = _Screen(to_stderr=False)
    assert not UNSAFE.search(printed(lambda: screen.update(experiment_of(text))))


def test_markup_in_a_name_is_text() -> None:
    out = io.StringIO()
    Console(file=out, width=200).print(live_view(experiment_of("[red]x[/red]")))
    assert "[red]x[/red]" in out.getvalue()


def test_only_one_file_writes_to_the_terminal() -> None:
    folder = Path(next(iter(trek.cli.__path__)))
    raw = re.compile(r"(?<!def )(?<![\w.])(click\.s?echo|click\.confirm|print)\(")
    found = [path.name for path in folder.glob("*.py") if raw.search(path.read_text())]
    assert found == ["terminal.py"]
    assert callable(confirm)
