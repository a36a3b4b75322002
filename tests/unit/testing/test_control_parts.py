"""Copied databases are those that the migrations make."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from trek.control.store import Store
from trek.testing.control_parts import open_store


def _contents(folder: Path) -> list[str]:
    """Sorted: in which order the indexes of a table are made differs from process to process."""
    with sqlite3.connect(folder / "control.db") as connection:
        found = list(connection.iterdump())
    connection.close()
    return sorted(found)


def test_a_copied_database_has_the_tables_and_rows_of_a_migrated_one(tmp_path: Path) -> None:
    Store.at(tmp_path / "migrated").close()
    for name in ("first", "second"):
        open_store(tmp_path / name).close()
        assert _contents(tmp_path / name) == _contents(tmp_path / "migrated")


def test_what_a_home_holds_stays(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    with sqlite3.connect(tmp_path / "control.db") as connection:
        connection.execute("CREATE TABLE mine (x)")
    connection.close()
    open_store(tmp_path).close()
    assert any("mine" in line for line in _contents(tmp_path))
