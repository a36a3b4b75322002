"""The records of flows: runs, states of steps, results by key, and the files of artefacts.

    $TREK_HOME/flows/<flow>/flow.db            records, in SQLite: safe for several runs at a time and for kill -9
    $TREK_HOME/flows/<flow>/objects/ab/abcd…/  artefacts by content; a folder gets its name once it is complete
    $TREK_HOME/flows/<flow>/runs/<run>/        logs of steps, and the attempts in progress
    $TREK_HOME/flows/<flow>/services/<step>/   services that outlive their run

Decides nothing: `trek.flow.runner` does.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from filelock import FileLock

from trek.engines.agent import start_time
from trek.errors import InputError, StorageError
from trek.fingerprints import FileFacts
from trek.flow.artefacts import Stored
from trek.world.home import claim_home

FINISHED = ("done", "cached", "skipped")
_SCHEMA = """
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
    folder: str | None
    """The working directory it was started in; None where an older version recorded the run."""

    @property
    def is_alive(self) -> bool:
        """Whether its process still works on it."""
        return self.state == "running" and self.pid_start is not None and start_time(self.pid) == self.pid_start

    @property
    def true_state(self) -> str:
        """The state, given whether its process is alive."""
        return "interrupted" if self.state == "running" and not self.is_alive else self.state


class FlowStore:
    """The records and files of one flow. Used from one thread."""

    def __init__(self, name: str, *, home: Path) -> None:
        self.name = name
        self.home = home
        self.folder = home / "flows" / name
        claim_home(home)
        try:
            (self.folder / "runs").mkdir(parents=True, exist_ok=True)
            with FileLock(
                self.folder / "flow.lock"
            ):  # SQLite does not wait for another process that sets up the same file
                self._db = sqlite3.connect(self.folder / "flow.db", timeout=60, isolation_level=None)
                self._db.execute("pragma journal_mode = wal")
                self._db.execute("pragma synchronous = normal")
                self._db.executescript(_SCHEMA)
                self._add_missing_columns()
        except (OSError, sqlite3.Error) as error:
            raise StorageError(
                f"the records of flow {name!r} cannot be opened in {self.folder}: {error}. "
                "Free some space there, or set TREK_HOME to another folder."
            ) from error

    def _add_missing_columns(self) -> None:
        """What the records of an older version lack."""
        known = {row[1] for row in self._db.execute("pragma table_info(runs)")}
        if "folder" not in known:
            self._db.execute("alter table runs add column folder text")

    def close(self) -> None:
        """Close the database."""
        self._db.close()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """All that is written inside, or nothing of it."""
        self._db.execute("begin immediate")
        try:
            yield
        except BaseException:
            self._db.execute("rollback")
            raise
        self._db.execute("commit")

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

    def begin_run(
        self, names: Sequence[str], *, params: Mapping[str, Any], source: str | None, graph: Any, resume: str | None
    ) -> str:
        """Record a new run, or that `resume` continues; returns its id."""
        run = resume or f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:6]}"
        pid = os.getpid()
        row = (
            run, "running", time.time(), None, pid, start_time(pid), json.dumps(params), source, json.dumps(graph),
            os.getcwd(),  # noqa: PTH109 - a text for the records
        )  # fmt: skip
        (self.run_folder(run) / "logs").mkdir(parents=True, exist_ok=True)
        with self.transaction():
            self._db.execute("insert or replace into runs values (?,?,?,?,?,?,?,?,?,?)", row)
            # A resumed run keeps what is known of its steps: they may be asked for again after another kill.
            self._db.execute("update steps set position = -1 where run = ?", (run,))
            self.add_steps(run, names)
            self._db.execute("delete from steps where run = ? and position = -1", (run,))
            self._db.execute(
                "update steps set state = 'pending', error = null where run = ? and state not in (?,?,?)",
                (run, *FINISHED),
            )
        return run

    def add_steps(self, run: str, names: Sequence[str]) -> None:
        """Record steps of a run, after those there are; what is already known of them stays."""
        (first,) = self._db.execute("select coalesce(max(position) + 1, 0) from steps where run = ?", (run,)).fetchone()
        self._db.executemany(
            "insert into steps (run, position, name, state, attempt) values (?,?,?,'pending',0) "
            "on conflict do update set position = excluded.position",
            [(run, position, name) for position, name in enumerate(names, start=first)],
        )

    def finish_run(self, run: str, state: str) -> None:
        """The run's last state; its unfinished attempts are removed."""
        shutil.rmtree(self.run_folder(run) / "attempts", ignore_errors=True)
        self._db.execute("update runs set state = ?, ended = ? where id = ?", (state, time.time(), run))

    def update_step(self, run: str, name: str, **fields: Any) -> None:
        """Change what is known of a step."""
        columns = ", ".join(f"{column} = ?" for column in fields)
        self._db.execute(
            f"update steps set {columns} where run = ? and name = ?",  # noqa: S608 - our own names
            (*fields.values(), run, name),
        )

    def save_result(self, run: str, key: str, outputs: Sequence[Stored]) -> None:
        """Keep the outputs of a step under its key."""
        self._db.execute("insert or replace into results values (?,?,?,?)", (key, self.dump(outputs), run, time.time()))

    def save_components(self, name: str, components: Mapping[str, str]) -> None:
        """Keep what a step's last success depended on."""
        self._db.execute("insert or replace into latest values (?,?)", (name, json.dumps(components)))

    def find_result(self, key: str) -> list[Stored] | None:
        """Outputs kept under `key`; whether they are still as they were is not looked at here."""
        row = self._db.execute("select outputs from results where key = ?", (key,)).fetchone()
        return self.read(row[0]) if row else None

    def run_of_result(self, key: str) -> str | None:
        """The run that made what is kept under `key`."""
        row = self._db.execute("select run from results where key = ?", (key,)).fetchone()
        return row[0] if row else None

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

    def dump(self, outputs: Sequence[Stored]) -> str:
        """Outputs as text, with folders relative to this store, so that it may be moved."""
        return json.dumps([replace(one, folder=self._relative(one.folder)).to_json() for one in outputs])

    def read(self, text: str) -> list[Stored]:
        """Outputs from such text."""
        stored = [Stored.from_json(one) for one in json.loads(text)]
        return [replace(one, folder=str(self.folder / one.folder) if one.folder else None) for one in stored]

    def _relative(self, folder: str | None) -> str | None:
        return folder and os.path.relpath(folder, self.folder)

    def adopt(self, stored: Stored, *, objects: Path | None = None) -> Stored:
        """Move an artefact from its attempt to its final folder; a folder that holds the same already is kept."""
        if stored.folder is None:
            return stored
        place = (objects or self.folder / "objects") / stored.digest[:2] / stored.digest
        place.parent.mkdir(parents=True, exist_ok=True)
        moved = stored.moved_to(place)
        if place.exists() and moved.find_change() is not None:
            place.rename(place.with_name(f"{place.name}.damaged.{uuid.uuid4().hex}"))
        try:
            os.rename(stored.folder, place)  # noqa: PTH104
        except OSError as error:
            if not place.exists():
                raise StorageError(f"an output cannot be moved to {place}: {error.strerror}.") from error
            shutil.rmtree(stored.folder)
            return replace(moved, files=tuple(_with_time(place, file) for file in moved.files))
        return moved

    def path_of(self, stored: Stored) -> Path:
        """A path that holds the value, written first if the records hold it."""
        if "json" in stored.facts and stored.folder is None:
            place = self.folder / "objects" / stored.digest[:2] / stored.digest
            place.mkdir(parents=True, exist_ok=True)
            stored = stored.moved_to(place)
            draft = place / f"draft.{uuid.uuid4().hex}"
            try:
                draft.write_text(stored.facts["json"])
                draft.rename(stored.path())
            finally:
                draft.unlink(missing_ok=True)
        return stored.path()

    def clean(self, *, keep_runs: int) -> tuple[int, int]:
        """Remove all but the newest runs, and what those did not use; returns how many artefacts and bytes."""
        if any(run.is_alive for run in self.runs()):
            raise InputError(f"flow {self.name!r} is running. Clean it after the run has ended.")
        kept = {run.id for run in self.runs()[-keep_runs:]} if keep_runs else set()
        with self.transaction():
            for run in self.runs():
                if run.id not in kept:
                    self._db.execute("delete from runs where id = ?", (run.id,))
                    self._db.execute("delete from steps where run = ?", (run.id,))
            self._db.execute("delete from results where key not in (select key from steps where key is not null)")
        for folder in (self.folder / "runs").iterdir():
            if folder.name not in kept:
                shutil.rmtree(folder)
        return self._remove_unused_objects()

    def _remove_unused_objects(self) -> tuple[int, int]:
        texts = [row[0] for row in self._db.execute("select outputs from results")]
        texts += [row[0] for row in self._db.execute("select outputs from steps where outputs is not null")]
        used = {stored.digest for text in texts for stored in self.read(text)}
        count = num_bytes = 0
        for folder in (self.folder / "objects").glob("*/*"):
            if folder.name not in used:
                count += 1
                num_bytes += sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
                shutil.rmtree(folder)
        return count, num_bytes


def file_name(name: str) -> str:
    """A step's name as a file can have it; characters that none can have are spelled out."""
    return "".join(char if char.isalnum() or char in "._-[]" else f"%{ord(char):x}" for char in name)


def _with_time(root: Path, file: FileFacts) -> FileFacts:
    return file._replace(mtime_ns=(root / file.name).stat().st_mtime_ns)
