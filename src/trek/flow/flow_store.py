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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from filelock import FileLock

from trek.engines.agent import start_time
from trek.errors import StorageError
from trek.fingerprints import FileFacts
from trek.flow.artefacts import Stored
from trek.flow.flow_reader import SCHEMA, UNUSED, FlowReader
from trek.system.home import claim_home

FINISHED = ("done", "cached", "skipped")


class FlowStore(FlowReader):
    """The records and files of one flow, to be changed too. Made where they are missing."""

    def _connect(self) -> sqlite3.Connection:
        claim_home(self.home)
        (self.folder / "runs").mkdir(parents=True, exist_ok=True)
        with FileLock(self.folder / "flow.lock"):  # SQLite does not wait for another process that sets up the same file
            db = sqlite3.connect(self.folder / "flow.db", timeout=60, isolation_level=None)
            db.execute("pragma journal_mode = wal")
            db.execute("pragma synchronous = normal")
            db.executescript(SCHEMA)
            _add_missing_columns(db)
        return db

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

    def dump(self, outputs: Sequence[Stored]) -> str:
        """Outputs as text, with folders relative to this store, so that it may be moved."""
        return json.dumps([replace(one, folder=self._relative(one.folder)).to_json() for one in outputs])

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

    def forget(self, runs: Iterable[str]) -> None:
        """Remove the records of `runs`, and the results that no other run used."""
        with self.transaction():
            for run in runs:
                self._db.execute("delete from runs where id = ?", (run,))
                self._db.execute("delete from steps where run = ?", (run,))
            self._db.execute(f"delete from results where {UNUSED}")  # noqa: S608 - our own condition


def _add_missing_columns(db: sqlite3.Connection) -> None:
    """What the records of an older version lack."""
    known = {row[1] for row in db.execute("pragma table_info(runs)")}
    if "folder" not in known:
        db.execute("alter table runs add column folder text")


def _with_time(root: Path, file: FileFacts) -> FileFacts:
    return file._replace(mtime_ns=(root / file.name).stat().st_mtime_ns)
