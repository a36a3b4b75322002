"""DatabaseLease: one master at a time per database, on whatever machines they run.

The holder has a row in the database and counts up a number in it. A holder on this machine is known to be dead or alive
by its process; one elsewhere counts as dead when its number has not changed for `LEASE_S`, measured by the clock of
whoever waits, so clocks of several machines need not agree. Uses connections of its own, since a store's writers may
be busy for long.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sqlalchemy import Connection, insert, inspect, select, update
from sqlalchemy.exc import DatabaseError, IntegrityError

from trek.control.store import check_revision, open_database, storage_error
from trek.control.tables import MasterRow
from trek.engines.agent import start_time
from trek.errors import InputError
from trek.experiments.masking import masked_text
from trek.system.clock import Clock

LEASE_S = 20.0
BEAT_S = 4.0
POLL_S = 0.25
_LOG = logging.getLogger(__name__)
_ROW = 1
_Row = Mapping[str, Any]


class DatabaseLease:
    """Use as a context manager; `on_lost` is called, from another thread, if another master has taken the place."""

    def __init__(self, url: str, *, home: Path, clock: Clock, on_lost: Callable[[], None] = lambda: None) -> None:
        self._url = url
        self._clock = clock
        self._on_lost = on_lost
        self._engine = open_database(url)
        self._own: dict[str, Any] = {
            "nonce": secrets.token_hex(16),
            "machine": this_machine(),
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "process_start": start_time(os.getpid()) or 0,
            "home": str(home),
        }
        self.last_place = ""
        """The host and home that the database was last used with, if it was with another home."""
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        """Take the lease if the database has tables; otherwise `take` is called once they are made."""
        try:
            with self._engine.connect() as connection:
                check_revision(connection)
                is_known = inspect(connection).has_table(MasterRow.__tablename__)
            if is_known:
                self.take()
        except (DatabaseError, sqlite3.Error) as error:
            self._engine.dispose()
            raise storage_error(self._url, error) from error
        except BaseException:
            self._engine.dispose()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        try:
            self._change({"is_held": False})
        except DatabaseError:
            _LOG.warning("the lease of the database was not given back; it lapses in %g s", LEASE_S)
        self._engine.dispose()

    def take(self) -> None:
        """Become the database's only master, or raise InputError that names the present one. Twice is harmless."""
        if self._thread is not None:
            return
        holder = self._try()
        began_s = self._clock.monotonic_s()
        while holder is not None:
            if is_alive_here(holder):
                raise self._refused(holder)
            self._clock.sleep(POLL_S)
            is_lapsed = self._clock.monotonic_s() - began_s >= LEASE_S
            now = self._try(lapsed=holder if is_lapsed else None)
            if now is not None and (now["nonce"], now["beat"]) != (holder["nonce"], holder["beat"]):
                raise self._refused(now)
            holder = now
        self._thread = threading.Thread(target=self._keep, name="trek-lease")
        self._thread.start()

    def beat(self) -> bool:
        """Show that this master is alive; False if another has taken its place."""
        return self._change({"beat": MasterRow.beat + 1})

    def _try(self, *, lapsed: _Row | None = None) -> _Row | None:
        """Take the lease if it is free, its holder is known to be dead, or it is still as in `lapsed`; else the row."""
        try:
            with self._engine.begin() as connection:
                found = connection.execute(select(MasterRow.__table__).with_for_update()).mappings().first()
                row: _Row | None = {**found} if found is not None else None
                if row is not None and row["is_held"] and not is_dead_here(row) and not _is_same(row, lapsed):
                    return row
                self._write(connection, row)
        except IntegrityError:  # another has just made the first row
            return self._try(lapsed=lapsed)
        return None

    def _write(self, connection: Connection, row: _Row | None) -> None:
        values = {**self._own, "beat": 0, "is_held": True, "since_s": self._clock.now_s()}
        if row is None:
            connection.execute(insert(MasterRow).values(id=_ROW, **values))
            return
        if row["home"] != self._own["home"] or row["host"] != self._own["host"]:
            self.last_place = f"{row['home']} on {row['host']}"
        connection.execute(update(MasterRow).values(**values))

    def _change(self, values: _Row) -> bool:
        own = MasterRow.nonce == self._own["nonce"]
        if self._thread is None:
            return False
        with self._engine.begin() as connection:
            return bool(connection.execute(update(MasterRow).where(own).values(**values)).rowcount)

    def _keep(self) -> None:
        while not self._ended.wait(BEAT_S):
            try:
                is_own = self.beat()
            except DatabaseError as error:
                _LOG.warning("the lease of the database cannot be renewed: %s", error.orig)
                continue
            if not is_own:
                _LOG.error("another master has taken over the database %s; this one ends.", masked_text(self._url))
                self._on_lost()
                return

    def _refused(self, holder: _Row) -> InputError:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(holder["since_s"]))
        return InputError(
            f"the database {masked_text(self._url)!r} is in use by another master: process {holder['pid']} on "
            f"{holder['host']!r}, since {since}, with the home {holder['home']!r}. "
            "Stop that one first, or use another database."
        )


def this_machine() -> str:
    """Tells apart the machines, their boots and their containers, within which process ids have a meaning."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}:{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return socket.gethostname()


def is_alive_here(holder: _Row) -> bool:
    """Whether the holder is a process of this machine that runs."""
    return holder["machine"] == this_machine() and _runs(holder)


def is_dead_here(holder: _Row) -> bool:
    """Whether the holder was a process of this machine that has ended."""
    return holder["machine"] == this_machine() and not _runs(holder)


def _runs(holder: _Row) -> bool:
    return bool(start_time(holder["pid"]) == holder["process_start"])


def _is_same(row: _Row, lapsed: _Row | None) -> bool:
    return lapsed is not None and (row["nonce"], row["beat"]) == (lapsed["nonce"], lapsed["beat"])
