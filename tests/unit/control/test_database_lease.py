"""One master at a time per database: the second is refused, and a dead one's place is taken."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from trek.control.database_lease import LEASE_S, DatabaseLease
from trek.control.store import Store
from trek.errors import InputError
from trek.system.clock import Clock, SystemClock
from trek.testing.clock import FakeClock

Take = Callable[..., DatabaseLease]


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database with its tables and no master."""
    found = f"sqlite:///{tmp_path / 'one.db'}" if request.param == "sqlite" else str(request.getfixturevalue("server"))
    store = Store(found)
    with store.writing() as session:
        session.execute(text("DELETE FROM masters"))
    store.close()
    return found


@pytest.fixture
def take(url: str) -> Iterator[Take]:
    with contextlib.ExitStack() as stack:

        def make(*, clock: Clock | None = None, home: str = "/home/one", on_lost: Any = lambda: None) -> DatabaseLease:
            return stack.enter_context(
                DatabaseLease(url, home=Path(home), clock=clock or SystemClock(), on_lost=on_lost)
            )

        yield make


def _set(url: str, **values: object) -> None:
    """Make the master in the database another one."""
    store = Store(url)
    with store.writing() as session:
        changes = ", ".join(f"{name} = :{name}" for name in values)
        session.execute(text(f"UPDATE masters SET {changes}"), values)
    store.close()


def test_a_second_master_is_refused_and_told_who_the_first_is(take: Take) -> None:
    """Two masters on one PostgreSQL restarted each other's trials."""
    take()
    with pytest.raises(InputError, match=rf"process {os.getpid()} on .*, since 20.*with the home '/home/one'"):
        take(home="/home/two")


def test_a_master_that_ended_leaves_its_place(url: str) -> None:
    for home in ("one", "two"):
        with DatabaseLease(url, home=Path(home), clock=SystemClock()) as lease:
            assert lease.beat()
    assert lease.last_place.startswith("one on ")


def test_the_place_of_a_process_here_that_was_killed_is_taken_at_once(take: Take, url: str) -> None:
    first = take()
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    _set(url, pid=gone.pid)
    take(clock=FakeClock())
    assert not first.beat(), "the first learns that it was replaced"


def test_a_process_with_the_same_number_is_another_one(take: Take, url: str) -> None:
    take()
    _set(url, process_start=1)
    take(clock=FakeClock())


def test_a_master_elsewhere_that_shows_no_life_loses_its_place_after_the_lease(take: Take, url: str) -> None:
    take()
    _set(url, machine="another", nonce="another")
    clock = FakeClock()
    take(clock=clock)
    assert clock.monotonic_s() == pytest.approx(LEASE_S, abs=1)


def test_a_master_elsewhere_that_shows_life_keeps_its_place(take: Take, url: str) -> None:
    take()
    _set(url, machine="another", nonce="another", host="far-away")

    class Beating(FakeClock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            if self.monotonic_s() > LEASE_S / 2:
                _set(url, beat=7)

    with pytest.raises(InputError, match="far-away"):
        take(clock=Beating())


def test_a_database_without_tables_is_taken_when_they_are_made(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'new.db'}"
    with DatabaseLease(url, home=tmp_path, clock=SystemClock()) as lease, contextlib.closing(Store(url)):
        lease.take()
        lease.take()
        assert lease.beat()
