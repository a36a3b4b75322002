"""From every revision there ever was to today's, with rows in every table, on SQLite and on PostgreSQL."""

from __future__ import annotations

import contextlib
import uuid
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, MetaData, Table, create_engine, select, text
from sqlalchemy.types import JSON, Boolean, Float, Integer

from trek.control.experiments.parsed_config import parsed_config
from trek.control.layout import Layout
from trek.control.services import Services
from trek.control.store import Store, _migrate, migrations, open_database
from trek.control.tables import Base, ExperimentRow
from trek.experiments.config import ExperimentConfig
from trek.system.clock import SystemClock
from trek.testing.trial_runner import IdleRunner

REVISIONS = [script.revision for script in reversed(list(ScriptDirectory.from_config(migrations()).walk_revisions()))]
CONFIG = ExperimentConfig.parse(
    {"entrypoint": "a:B", "searcher": {"name": "single", "metric": "m", "max_length": 1}}
).normal_form()
# Columns whose values the code of today must understand; all others are made up by their type.
MEANT: dict[str, Any] = {
    "experiments.config": CONFIG,
    "experiments.snapshot": {},
    "experiments.state": "completed",
    "experiments.labels": ["old"],
    "experiments.failure": "",
    "experiments.warnings": [],
    "trials.failure": "",
    "trials.latest_metrics": {"m": 1.5},
    "trials.state": "completed",
    "trials.slots": [],
    "metrics.metrics": {"loss": 0.25},
    "checkpoints.is_deleted": False,
    "checkpoints.metrics": {"m": 1.5},
}


def filled(engine: Engine) -> dict[str, list[dict[str, Any]]]:
    """Two rows in every table that has no parents but the first rows of others; returns what was written."""
    found = MetaData()
    found.reflect(engine)
    written: dict[str, list[dict[str, Any]]] = {}
    with engine.begin() as connection:
        for table in found.sorted_tables:
            if table.name != "alembic_version":
                written[table.name] = [_row(table, number) for number in (1, 2)]
                connection.execute(table.insert(), written[table.name])
    return written


def _row(table: Table, number: int) -> dict[str, Any]:
    return {column.name: _value(table, column, number) for column in table.columns}


def _value(table: Table, column: Any, number: int) -> Any:
    for key in column.foreign_keys:
        return _value(key.column.table, key.column, number)
    if (meant := MEANT.get(f"{table.name}.{column.name}")) is not None:
        return meant
    if isinstance(column.type, JSON):
        return {"of": [column.name, number]}
    if isinstance(column.type, Boolean):
        return number == 2
    if isinstance(column.type, Float):
        return number + 0.5
    return number if isinstance(column.type, Integer) else f"{column.name[:10]}-{number}"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'old.db'}"
    server = request.getfixturevalue("server")
    name = f"old_{uuid.uuid4().hex}"
    engine = create_engine(server.replace("postgresql://", "postgresql+psycopg://"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return f"{server.rpartition('/')[0]}/{name}"


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_store_of_any_revision_is_brought_forward_with_all_its_rows(url: str, revision: str, tmp_path: Path) -> None:
    engine = open_database(url)
    _migrate(engine, to=revision)
    written = filled(engine)
    engine.dispose()

    with contextlib.closing(Store(url)) as store:
        found = MetaData()
        found.reflect(store._engine)
        with store._engine.connect() as connection:
            assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []
            for name, rows in written.items():
                columns = [found.tables[name].columns[column] for column in rows[0]]
                kept = [dict(row) for row in connection.execute(select(*columns)).mappings()]
                assert sorted(kept, key=str) == sorted(rows, key=str), name
        _use(store, tmp_path)


def test_a_stored_pattern_that_is_no_longer_supported_is_taken_out_and_named(url: str) -> None:
    """A stored (a+)+$ froze the control plane at every start; one with a lookahead cannot be loaded now."""
    engine = open_database(url)
    _migrate(engine, to="0007")
    written = filled(engine)["experiments"][0]
    policies = [{"pattern": "(a+)+$", "action": "cancel_retries"}, {"pattern": "(?=a)b", "action": "cancel_retries"}]
    config = {**written["config"], "log_policies": policies}
    with engine.begin() as connection:
        table = Table("experiments", MetaData(), autoload_with=connection)
        connection.execute(table.update().where(table.c.id == 1).values(config=config))
    engine.dispose()
    with contextlib.closing(Store(url)) as store, store.reading() as session:
        row = session.get_one(ExperimentRow, 1)
        assert [policy.pattern for policy in parsed_config(row).log_policies] == ["(a+)+$"]
        assert "'(?=a)b'" in row.warnings[-1]


def _use(store: Store, folder: Path) -> None:
    """The code of today reads what is there."""
    layout = Layout(folder)
    services = Services.over(store, layout=layout, runner=IdleRunner(), clock=SystemClock())
    assert [one.id for one in services.experiments.all()] == [2, 1]
    assert [trial.state for trial in services.experiments.get(1).trials] == ["completed"]
    assert [point.metrics for point in services.trials.metrics(1)] == [{"loss": 0.25}]
    assert [line.level for line in services.logs.read(trial_id=1)]
    assert {one.metrics["m"] for one in services.checkpoints.all()} == {1.5}
