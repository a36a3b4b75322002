"""Removes old runs of a flow, and the results and files that no other run used.

Files go first, by records that are only read: on a full disk nothing can be written before there is space again.
"""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from trek.errors import InputError, StorageError
from trek.flow.flow_reader import FlowReader
from trek.flow.flow_store import FlowStore
from trek.flow.inspect import open_reader
from trek.system.disk import storage_errors


def clean_flow(name: str, *, home: Path, keep_runs: int) -> tuple[int, int]:
    """Keep only the newest runs, and what these used; returns how many artefacts and bytes were removed."""
    with closing(open_reader(name, home=home)) as reader:
        runs = reader.runs()
        if any(run.is_alive for run in runs):
            raise InputError(f"flow {name!r} is running. Clean it after the run has ended.")
        ids = [run.id for run in runs]
        kept = ids[-keep_runs:] if keep_runs else []
        old = ids[: len(ids) - len(kept)]
        with storage_errors(reader.folder, remedy="Make it writable, and clean the flow again."):
            removed = _remove_files(reader, kept)
        is_record_left = bool(old) or reader.num_unused_results() > 0
    if is_record_left:
        _forget(name, old, home=home)
    return removed


def _remove_files(reader: FlowReader, kept: list[str]) -> tuple[int, int]:
    used = reader.used_digests(kept)
    for folder in (reader.folder / "runs").iterdir():
        if folder.name not in kept:
            shutil.rmtree(folder)
    count = num_bytes = 0
    for folder in (reader.folder / "objects").glob("*/*"):
        if folder.name not in used:
            count += 1
            num_bytes += sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
            shutil.rmtree(folder)
    return count, num_bytes


def _forget(name: str, old: list[str], *, home: Path) -> None:
    try:
        with closing(FlowStore(name, home=home)) as store:
            store.forget(old)
    except sqlite3.Error as error:
        raise StorageError(
            f"the files of old runs of flow {name!r} were removed, but not their records: {error}. Free some space in "
            f"{home}, and clean it again."
        ) from error
