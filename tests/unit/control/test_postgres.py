"""The control plane on a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import create_engine

from trek.client.models import CheckpointReport, CreateUser, MetricPoint, Report
from trek.control.accounts import Accounts
from trek.control.store import Store
from trek.control.tables import Base
from trek.errors import StorageError
from trek.system.clock import SystemClock
from trek.testing.postgres import can_run_postgres, postgres

MakePlane = Callable[..., Any]
pytestmark = pytest.mark.skipif(not can_run_postgres(), reason="no PostgreSQL here")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with postgres() as found:
        yield found


def test_a_search_runs_is_recorded_and_deleted(make_plane: MakePlane, url: str) -> None:
    plane = make_plane("print('hello'); outcome('done')", url=url)
    searcher = {"name": "random", "metric": "error", "max_trials": 3, "max_length": 10}
    number = plane.create(searcher=searcher, hyperparameters={"lr": {"type": "double", "minval": 0, "maxval": 1}})
    details = plane.run_to_end(number)
    assert [trial.state for trial in details.trials] == ["completed"] * 3
    assert [line.text for line in plane.services.logs.read(experiment_id=number)] == ["hello"] * 3
    plane.services.experiments.delete(number)
    assert plane.services.experiments.all() == []


def test_rows_reported_twice_count_once(make_plane: MakePlane, url: str) -> None:
    plane = make_plane("time.sleep(600)", url=url)
    number = plane.create()
    plane.run_until(lambda: plane.supervisor.running)
    trial = plane.services.experiments.get(number).trials[0].id
    point = MetricPoint(group="validation", batches=10, metrics={"error": 0.5, "worse": None}, time_s=1.0)
    path = f"{plane.layout.trial(plane.trial(trial))}/checkpoints/u"
    checkpoint = CheckpointReport(
        uuid="u",
        batches=10,
        path=path,
        num_bytes=2**40,
        time_s=1.0,
    )
    for _ in range(2):
        plane.services.trials.report(
            trial, Report(run=1, metrics=[point, point], checkpoints=[checkpoint], progress=0.5)
        )
    assert plane.services.trials.metrics(trial) == [point]
    assert [one.uuid for one in plane.services.checkpoints.all(trial_id=trial)] == ["u"]
    assert plane.services.experiments.get(number).best_metric == 0.5
    plane.services.experiments.kill(number)
    plane.run_to_end(number)


def test_users_are_kept_there_too(url: str) -> None:
    store = Store(url)
    accounts = Accounts(store, clock=SystemClock())
    accounts.create_user(CreateUser(name="ann", password="correct horse"))
    assert accounts.has_users
    store.close()


def test_the_migrations_make_the_tables_the_code_uses(url: str) -> None:
    Store(url).close()
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []
    engine.dispose()


def test_a_server_that_is_not_there_is_named_without_its_password() -> None:
    with pytest.raises(StorageError) as caught:
        Store("postgresql://me:secret@127.0.0.1:9/db")
    assert "127.0.0.1" in str(caught.value)
    assert "secret" not in str(caught.value)
