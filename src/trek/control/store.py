"""The database: opens it, migrates its tables, and provides transactions. Its contents are defined in `tables`.

SQLite by default, PostgreSQL by URL. A process has one writer at a time, so that its transactions never conflict with
each other; readers do not wait.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from pydantic_core import from_json, to_json
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DatabaseError, DataError, OperationalError
from sqlalchemy.orm import Session

from trek._version import __version__
from trek.errors import InputError, StorageError
from trek.experiments.masking import masked_text, redacted, secret_values
from trek.system.home import claim_home

Subject = tuple[str, int]
"""What a transaction may change, if it changes little: the metrics or the logs of a trial, or an experiment."""
BUSY_TIMEOUT_S = 30
_MIGRATIONS = Path(__file__).parent / "migrations"


class Store:
    """An open database. Safe to use from several threads."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.num_writes = 0
        """How many transactions were committed; two equal readings mean that nothing changed between them."""
        self._last_write: dict[Subject, int] = {}
        self._last_wide_write = 0
        self._write_lock = threading.RLock()
        self._engine = open_database(url)
        try:
            _migrate(self._engine)
        except (DatabaseError, sqlite3.Error, CommandError) as error:
            self._engine.dispose()
            raise storage_error(url, error) from error
        except InputError:
            self._engine.dispose()
            raise

    @classmethod
    def at(cls, folder: Path) -> Store:
        """The SQLite database in the home `folder`, which is created if it is missing."""
        return cls(cls.url_at(folder))

    @staticmethod
    def url_at(folder: Path) -> str:
        """The URL of the SQLite database in the home `folder`, which is created if it is missing."""
        return f"sqlite:///{claim_home(folder) / 'control.db'}"

    @contextmanager
    def writing(self, *, about: Sequence[Subject] | None = None) -> Iterator[Session]:
        """A transaction that is committed at the end of the block, or rolled back if the block raises.

        `about` names all that it may change, by the end of the block; without it, it may change anything.
        """
        with self._write_lock:
            with self._session(begin="IMMEDIATE") as session, session.begin():
                yield session
            number = self.num_writes + 1
            if about is None:
                self._last_wide_write = number
                self._last_write.clear()
            else:
                self._last_write.update(dict.fromkeys(about, number))
            self.num_writes = number  # last, since `changes` needs no lock

    def version(self, subject: Subject) -> int:
        """Two equal readings mean that nothing about `subject` changed between them."""
        return self._last_write.get(subject, self._last_wide_write)

    def changes(self, since: int) -> tuple[int, list[Subject] | None]:
        """The number of writes, and what those after `since` were about; None if they may have changed anything."""
        number = self.num_writes  # first: what later writes add is told once more with the next number
        written = list(self._last_write.items())
        return number, None if self._last_wide_write > since else [who for who, when in written if when > since]

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """A consistent view; changes made through it are discarded."""
        with self._session(begin="DEFERRED") as session:
            yield session

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    @contextmanager
    def _session(self, *, begin: str) -> Iterator[Session]:
        engine = self._engine.execution_options(sqlite_begin=begin)
        try:
            with Session(engine, expire_on_commit=False) as session:
                yield session
        except OperationalError as error:
            raise storage_error(self.url, error) from error
        except (OverflowError, DataError) as error:
            cause = getattr(error, "orig", None) or error
            raise InputError(f"a value does not fit into the database: {cause}. Use a smaller one.") from error
        except UnicodeEncodeError as error:
            raise InputError(f"text cannot be stored: {error.reason}. Use valid Unicode.") from error


def open_database(url: str) -> Engine:
    """Connections to the database at `url`; nothing is read or written yet."""
    if url.startswith("postgresql://"):
        url = url.replace("postgresql://", "postgresql+psycopg://", 1)
    try:
        engine = create_engine(
            url,
            pool_size=16,
            max_overflow=32,
            pool_pre_ping=not url.startswith("sqlite"),
            json_serializer=_to_json,
            json_deserializer=_from_json,
        )
    except Exception as error:
        raise InputError(f"the database URL {masked_text(url)!r} cannot be used: {error}.") from error
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    return engine


def _to_json(value: Any) -> str:
    """A fast `json.dumps`, since every metric row passes here; falls back to it for what only it can write."""
    try:
        return to_json(value).decode()
    except ValueError:
        return json.dumps(value)


def _from_json(text: str | bytes) -> Any:
    try:
        return from_json(text)
    except ValueError:
        return _from_json_of_old_versions(text)


def _from_json_of_old_versions(text: str | bytes) -> Any:
    """Values that were stored before they were checked. One that cannot be read must not hide the other rows."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        return {"cannot be read": type(error).__name__}


def _prepare_sqlite(connection: Any, record: Any) -> None:
    # The driver begins transactions too late to keep a read and the following write consistent.
    connection.isolation_level = None
    for pragma in (
        f"busy_timeout = {BUSY_TIMEOUT_S * 1000}",
        "journal_mode = WAL",
        "synchronous = NORMAL",
        "foreign_keys = ON",
    ):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    mode = connection.get_execution_options().get("sqlite_begin", "IMMEDIATE")
    connection.exec_driver_sql(f"BEGIN {mode}")


def migrations() -> Config:
    """The alembic config with the history of the tables."""
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    return config


def _migrate(engine: Engine, *, to: str = "head") -> None:
    config = migrations()
    with engine.begin() as connection:
        check_revision(connection)
        config.attributes["connection"] = connection
        command.upgrade(config, to)


def check_revision(connection: Connection) -> None:
    """Raise InputError if a newer version of Trek has changed the tables. Changes nothing."""
    history = ScriptDirectory.from_config(migrations())
    known = {script.revision for script in history.walk_revisions()}
    newer = set(MigrationContext.configure(connection).get_current_heads()) - known
    if newer:
        raise InputError(
            f"the database was written by a newer version of Trek: it has revision {sorted(newer)[0]}, but this "
            f"version ({__version__}) knows revisions up to {max(known)}. Use the newer version; nothing was changed."
        )


def storage_error(url: str, error: Exception) -> StorageError:
    """What the database at `url` refused, without its password."""
    cause = getattr(error, "orig", None) or error
    why = " ".join(redacted(str(cause), secret_values(url)).split()).rstrip("?.")
    return StorageError(f"the database {masked_text(url)!r} cannot be used: {why}. Check its folder, disk and address.")
