"""The database: made, migrated, shared between threads, and clear about what it cannot do."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import create_engine, select, text

from trek.control.store import Store
from trek.control.tables import Base, ExperimentRow
from trek.errors import InputError, StorageError


def row(name: str = "one") -> ExperimentRow:
    return ExperimentRow(name=name, config={}, archive="", created_s=1.0)


def test_the_migrations_make_the_tables_the_code_uses(tmp_path: Path) -> None:
    Store.at(tmp_path).close()
    engine = create_engine(f"sqlite:///{tmp_path / 'control.db'}")
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []
    engine.dispose()


def test_what_was_written_is_there_after_opening_again(tmp_path: Path) -> None:
    store = Store.at(tmp_path)
    with store.writing() as session:
        session.add(row())
    store.close()
    again = Store.at(tmp_path)
    with again.reading() as session:
        assert session.scalars(select(ExperimentRow.name)).all() == ["one"]
    again.close()


def test_a_transaction_that_fails_leaves_nothing(tmp_path: Path) -> None:
    store = Store.at(tmp_path)
    with contextlib.suppress(ZeroDivisionError), store.writing() as session:
        session.add(row())
        session.flush()
        raise ZeroDivisionError
    with store.reading() as session:
        assert session.scalars(select(ExperimentRow)).all() == []
    store.close()


def test_many_threads_write_without_losing_anything(tmp_path: Path) -> None:
    store = Store.at(tmp_path)

    def write(name: str) -> None:
        for _ in range(20):
            with store.writing() as session:
                session.add(row(name))

    threads = [threading.Thread(target=write, args=(f"thread {i}",)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with store.reading() as session:
        assert len(session.scalars(select(ExperimentRow.id)).all()) == 80
    store.close()


def test_a_folder_that_cannot_be_made_is_the_outsides_fault() -> None:
    with pytest.raises(StorageError, match="cannot create the folder"):
        Store.at(Path("/dev/null/home"))


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "control.db").write_text("this is no database, and long enough to be seen as none" * 20)
    with pytest.raises(StorageError, match="cannot be used"):
        Store.at(tmp_path)


def test_a_password_in_a_url_is_not_repeated() -> None:
    with pytest.raises(InputError) as caught:
        Store("nosuchdatabase://me:secret@host/db")
    assert "secret" not in str(caught.value)


def test_a_database_of_a_newer_trek_is_left_alone(tmp_path: Path) -> None:
    Store.at(tmp_path).close()
    engine = create_engine(f"sqlite:///{tmp_path / 'control.db'}")
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    engine.dispose()
    with pytest.raises(InputError, match="newer version of Trek: it has revision 9999"):
        Store.at(tmp_path)


@pytest.mark.parametrize("value", ["\ud800", float("inf"), 10**40, 1e-310, "é", None], ids=repr)
def test_whatever_json_can_say_comes_back(tmp_path: Path, value: object) -> None:
    store = Store.at(tmp_path)
    with store.writing() as session:
        session.add(ExperimentRow(name="one", config={"value": [value]}, archive="", created_s=1.0))
    with store.reading() as session:
        assert session.scalars(select(ExperimentRow.config)).one() == {"value": [value]}
    store.close()
