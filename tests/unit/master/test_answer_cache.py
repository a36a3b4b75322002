"""Answers that are kept: served again only while nothing was written, and only to users."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import FastAPI
from sqlalchemy import event, select

from trek.client import models
from trek.control.services import Services
from trek.control.store import Store
from trek.control.tables import ExperimentRow, TrialRow
from trek.control.trials.log_intake import LogIntake
from trek.engines import LogLine
from trek.experiments.config import ExperimentConfig
from trek.experiments.log_patterns import LogPatterns
from trek.master.answer_cache import MAX_AGE_S
from trek.master.app import make_app
from trek.testing.clock import FakeClock

pytestmark = pytest.mark.anyio
Asker = Callable[..., Any]
MakeToken = Callable[[str, models.Role], str]
CONFIG = ExperimentConfig.parse(
    {"entrypoint": "a:B", "searcher": {"name": "single", "metric": "m", "max_length": 1}}
).normal_form()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def app(services: Services, clock: FakeClock) -> FastAPI:
    return make_app(services, token="t0ken", stop=lambda kill: None, clock=clock)


@pytest.fixture
def queries(store: Store) -> list[str]:
    """Every statement that is executed."""
    found: list[str] = []
    event.listen(store._engine, "before_cursor_execute", lambda *values: found.append(values[2]))
    return found


def _add(store: Store, name: str) -> None:
    with store.writing() as session:
        row = ExperimentRow(name=name, owner="ed", state="running", config=CONFIG, archive="0" * 64, created_s=1.0)
        session.add(row)
        session.flush()
        session.add(TrialRow(experiment_id=row.id, key=0, hparams={}, seed=0, length=1, created_s=1.0))


async def test_the_same_question_is_answered_once_while_nothing_is_written(
    store: Store, ask: Asker, make_token: MakeToken, queries: list[str]
) -> None:
    """200 clients that polled the same list used to be 200 queries."""
    _add(store, "first")
    tokens = [make_token("ann", "viewer"), make_token("ed", "editor"), "t0ken"]
    texts = [(await ask("GET", "/api/v1/experiments", token=token)).text for token in tokens]
    queries.clear()
    texts += [(await ask("GET", "/api/v1/experiments", token=token)).text for token in tokens]
    assert queries == []
    assert len(set(texts)) == 1


@pytest.mark.parametrize("path", ["/experiments", "/experiments/1", "/experiments/1/trials", "/trials/1", "/jobs"])
async def test_an_answer_after_a_write_is_new(store: Store, services: Services, ask: Asker, path: str) -> None:
    _add(store, "first")
    before = (await ask("GET", f"/api/v1{path}")).text
    services.experiments.change(1, models.ChangeExperiment(name="renamed", priority=7))
    with store.writing() as session:
        session.get_one(TrialRow, 1).waiting = "for a slot"
    assert (await ask("GET", f"/api/v1{path}")).text != before


SHARED = [
    "/experiments",
    *(f"/experiments/{number}{part}" for number in (1, 2) for part in ("", "/trials", "/logs")),
    *(f"/trials/{number}{part}" for number in (1, 2) for part in ("", "/metrics", "/logs")),
    "/checkpoints",
    "/jobs",
]


async def _answers(ask: Asker) -> dict[str, str]:
    return {path: (await ask("GET", f"/api/v1{path}")).text for path in SHARED}


@pytest.mark.parametrize("deed", ["report", "log", "kill"])
async def test_whatever_a_trial_does_no_answer_is_old(
    store: Store, services: Services, ask: Asker, clock: FakeClock, deed: str
) -> None:
    """What is kept over a report about something else must be what would be answered anew."""
    _add(store, "first")
    _add(store, "second")
    with store.writing() as session:
        for trial in session.scalars(select(TrialRow)):
            trial.state, trial.run = "running", 1
    await _answers(ask)
    if deed == "report":
        point = models.MetricPoint(group="validation", batches=1, metrics={"m": 0.5}, time_s=1.0)
        services.trials.report(1, models.Report(run=1, metrics=[point], progress=0.5))
    elif deed == "log":
        limits = {"max_bytes": 10_000, "used_bytes": 0}
        hello = [LogLine("hello", 6)]
        gang: Any = SimpleNamespace(num_workers=1, read_log=lambda rank, position: hello if position == 0 else [])
        intake = LogIntake(
            store, gang, trial_id=1, positions=[0], cancel_patterns=LogPatterns([]), clock=clock, **limits
        )
        intake.take_part(is_over=False)
    else:
        services.trials.kill(1)
    soon = await _answers(ask)
    clock.sleep(2 * MAX_AGE_S)
    assert await _answers(ask) == soon


async def test_a_report_leaves_the_answers_about_other_experiments(
    store: Store, services: Services, ask: Asker, queries: list[str]
) -> None:
    """With trials reporting all the time, nothing was ever answered from what is kept."""
    _add(store, "first")
    _add(store, "second")
    with store.writing() as session:
        session.get_one(TrialRow, 1).state, session.get_one(TrialRow, 1).run = "running", 1
    others = ["/experiments/2", "/trials/2/metrics", "/trials/1/logs"]
    for path in others:
        await ask("GET", f"/api/v1{path}")
    point = models.MetricPoint(group="training", batches=1, metrics={"m": 0.5}, time_s=1.0)
    services.trials.report(1, models.Report(run=1, metrics=[point]))
    queries.clear()
    for path in others:
        await ask("GET", f"/api/v1{path}")
    assert queries == []


async def test_another_query_is_another_answer(store: Store, ask: Asker) -> None:
    _add(store, "first")
    _add(store, "second")
    assert len((await ask("GET", "/api/v1/experiments?limit=1")).json()) == 1
    assert len((await ask("GET", "/api/v1/experiments?limit=2")).json()) == 2


async def test_an_answer_is_kept_for_seconds_at_most(
    store: Store, ask: Asker, clock: FakeClock, queries: list[str]
) -> None:
    _add(store, "first")
    await ask("GET", "/api/v1/experiments")
    clock.advance(MAX_AGE_S)
    queries.clear()
    await ask("GET", "/api/v1/experiments")
    assert queries


async def test_what_is_kept_for_users_is_not_given_to_trials(store: Store, services: Services, ask: Asker) -> None:
    _add(store, "first")
    assert (await ask("GET", "/api/v1/experiments")).status_code == 200
    trial = services.accounts.trial_token(1, 0)
    assert (await ask("GET", "/api/v1/experiments", token=trial)).status_code in (401, 403)
    assert (await ask("GET", "/api/v1/experiments", token="wrong")).status_code == 401


async def test_an_error_is_not_kept(store: Store, ask: Asker) -> None:
    assert (await ask("GET", "/api/v1/experiments/1")).status_code == 404
    assert (await ask("GET", "/api/v1/experiments/1")).status_code == 404
    _add(store, "first")
    assert (await ask("GET", "/api/v1/experiments/1")).status_code == 200
