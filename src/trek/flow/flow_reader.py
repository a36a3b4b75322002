"""Reads the records of one flow: runs, states of steps, results by key. `flow_store` says where they are.

Changes nothing, and needs no space and no permission to write: what is on a full or read-only disk can be read there.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trek.engines.agent import start_time
from trek.errors import InputError, StorageError
from trek.flow.artefacts import Stored

SCHEMA = """
create table if not exists runs (
    id text primary key, state text, started real, ended real, pid int, pid_start int,
    params text, source text, graph text, folder text
);
create table if not exists steps (
    run text, position int, name text, state text, key text, reason text, attempt int,
    started real, ended real, error text, outputs text, primary key (run, name)
);
create table if not exists results (key text primary key, outputs text, run text, created real);
create table if not exists latest (name text primary key, components text);
"""
UNUSED = "key not in (select key from steps where key is not null)"
"""Of a result: no run that is left used it."""


@dataclass(frozen=True)
class StepRow:
    """One step in one run."""

    run: str
    position: int
    name: str
    state: str
    key: str | None
    reason: str | None
    attempt: int
    started: float | None
    ended: float | None
    error: str | None
    outputs: str | None

    @property
    def seconds(self) -> float | None:
        """How long it ran."""
        return None if self.started is None or self.ended is None else self.ended - self.started


@dataclass(frozen=True)
class RunRow:
    """One run. A run whose process ended without recording it was interrupted."""

    id: str
    state: str
    started: float
    ended: float | None
    pid: int
    pid_start: int | None
    params: str
    source: str | None
    graph: str
    folder: str | None = None
    """The working directory it was started in; None where an older version recorded the run."""

    @property
    def is_alive(self) -> bool:
        """Whether its process still works on it."""
        return self.state == "running" and self.pid_start is not None and start_time(self.pid) == self.pid_start

    @property
    def true_state(self) -> str:
        """The state, given whether its process is alive."""
        return "interrupted" if self.state == "running" and not self.is_alive else self.state


class FlowReader:
    """The records and files of one flow that has been run. Used from one thread."""

    def __init__(self, name: str, *, home: Path) -> None:
        self.name = name
        self.home = home
        self.folder = home / "flows" / name
        try:
            self._db = self._connect()
        except (OSError, sqlite3.Error) as error:
            raise StorageError(
                f"the records of flow {name!r} cannot be opened in {self.folder}: {error}. "
                "Free some space there, or set TREK_HOME to another folder."
            ) from error

    def _connect(self) -> sqlite3.Connection:
        """Open the database; what another process has only begun to set up is read as empty."""
        db = _open_to_read(self.folder / "flow.db")
        if db.execute("select 1 from sqlite_master where name = 'latest'").fetchone() is None:
            db.close()
            db = sqlite3.connect(":memory:")
            db.executescript(SCHEMA)
        return db

    def close(self) -> None:
        """Close the database."""
        self._db.close()

    def run_folder(self, run: str) -> Path:
        """Where a run keeps logs and attempts."""
        return self.folder / "runs" / run

    def log_path(self, run: str, step: str) -> Path:
        """Where what a step prints is kept."""
        return self.run_folder(run) / "logs" / f"{file_name(step)}.log"

    @property
    def services(self) -> Path:
        """Where detached services keep their files."""
        return self.folder / "services"

    def find_result(self, key: str) -> list[Stored] | None:
        """Outputs kept under `key`; whether they are still as they were is not looked at here."""
        row = self._db.execute("select outputs from results where key = ?", (key,)).fetchone()
        return self.read(row[0]) if row else None

    def run_of_result(self, key: str) -> str | None:
        """The run that made what is kept under `key`."""
        row = self._db.execute("select run from results where key = ?", (key,)).fetchone()
        return row[0] if row else None

    def num_unused_results(self) -> int:
        """How many results no run used."""
        (count,) = self._db.execute(f"select count(*) from results where {UNUSED}").fetchone()  # noqa: S608 - our own
        return int(count)

    def used_digests(self, runs: Sequence[str]) -> set[str]:
        """The artefacts that `runs` made or used."""
        marks = ",".join("?" * len(runs))
        texts = self._db.execute(
            f"select outputs from steps where outputs is not null and run in ({marks}) "  # noqa: S608 - only marks
            f"union select outputs from results where key in (select key from steps where run in ({marks}))",
            (*runs, *runs),
        )
        return {stored.digest for (text,) in texts for stored in self.read(text)}

    def latest_components(self, name: str) -> dict[str, str] | None:
        """What the last success of the step called `name` depended on."""
        row = self._db.execute("select components from latest where name = ?", (name,)).fetchone()
        return json.loads(row[0]) if row else None

    def runs(self) -> list[RunRow]:
        """All runs, the newest last."""
        return [RunRow(*row) for row in self._db.execute("select * from runs order by started, id")]

    def find_run(self, run: str | None) -> RunRow:
        """The run called `run`, or the newest."""
        rows = self.runs()
        chosen = [row for row in rows if run in (None, row.id)]
        if not chosen:
            known = ", ".join(row.id for row in rows[-5:]) or "none"
            raise InputError(f"flow {self.name!r} has no run {run!r}. The newest are: {known}.")
        return chosen[-1]

    def steps(self, run: str) -> list[StepRow]:
        """The steps of a run in the order of their definition."""
        rows = self._db.execute("select * from steps where run = ? order by position", (run,))
        return [StepRow(*row) for row in rows]

    def count_steps(self) -> dict[str, dict[str, int]]:
        """By run, how many steps are in which state."""
        counts: dict[str, dict[str, int]] = {}
        for run, state, count in self._db.execute("select run, state, count(*) from steps group by run, state"):
            counts.setdefault(run, {})[state] = count
        return counts

    def first_errors(self) -> dict[str, str]:
        """By run, the error of the first failed step."""
        query = "select run, error from steps where state = 'failed' and error != '' order by position desc"
        return dict(self._db.execute(query).fetchall())

    def version(self) -> int:
        """A number that changes when somebody else writes."""
        return int(self._db.execute("pragma data_version").fetchone()[0])

    def read(self, text: str) -> list[Stored]:
        """Outputs from such text."""
        stored = [Stored.from_json(one) for one in json.loads(text)]
        return [replace(one, folder=str(self.folder / one.folder) if one.folder else None) for one in stored]


def _open_to_read(path: Path) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode=ro"
    db = sqlite3.connect(uri, uri=True, timeout=60)
    try:
        db.execute("select 1 from sqlite_master")
    except sqlite3.OperationalError:
        db.close()
        log = path.with_name(f"{path.name}-wal")
        if log.exists() and log.stat().st_size:
            raise
        # There is no space for the index of a write-ahead log, and no log: the file is whole, and nothing writes to it.
        db = sqlite3.connect(f"{uri}&immutable=1", uri=True)
    return db


def file_name(name: str) -> str:
    """A step's name as a file can have it; characters that none can have are spelled out."""
    return "".join(char if char.isalnum() or char in "._-[]" else f"%{ord(char):x}" for char in name)
