"""ArtifactService: files of a user's own that trials upload; kept in the trial's folder, and deleted with it.

A name becomes one file name, with `/` as `%2F`, so that no name can be a folder or lead out of it.
"""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote, unquote

from trek.client import models
from trek.control.layout import Layout
from trek.control.lookup import find_running, find_trial
from trek.control.store import Store
from trek.errors import InputError, NotFound
from trek.system.disk import storage_errors
from trek.system.plain_files import NotPlainFile, open_plain
from trek.train.artifacts import MAX_BYTES, artifact_name, content_type

MAX_FILES = 1000
MAX_TRIAL_BYTES = 2**30
_SAFE = " +=@,()"
_REMEDY = "Free some space on the disk of the control plane."


class ArtifactService:
    """Artifacts of the trials of one store."""

    def __init__(self, store: Store, *, layout: Layout) -> None:
        self._store = store
        self._layout = layout

    def all(self, trial_id: int) -> list[models.ArtifactRecord]:
        """The artifacts of a trial, by name."""
        folder = self._folder(trial_id)
        paths = [path for path in folder.iterdir() if path.name[0] != "."] if folder.is_dir() else []
        found = [_record(unquote(path.name), path.lstat()) for path in paths if _is_plain(path)]
        return sorted(found, key=lambda one: one.name)

    def open(self, trial_id: int, name: str) -> BinaryIO:
        """The content of one artifact, which the caller closes."""
        try:
            return open_plain(self._folder(trial_id) / _file_name(name))
        except (FileNotFoundError, NotPlainFile):
            raise NotFound(
                f"trial {trial_id} has no artifact {name!r}. See `trek trial artifacts {trial_id}`."
            ) from None

    def put(self, trial_id: int, name: str, content: bytes, *, run: int) -> models.ArtifactRecord:
        """Keep an artifact of a running trial; the same name replaces it."""
        with self._store.reading() as session:
            find_running(session, trial_id, run=run)
        return self.add(trial_id, name, content)

    def add(self, trial_id: int, name: str, content: bytes) -> models.ArtifactRecord:
        """Keep an artifact that was made from a trial, such as a report; the same name replaces it."""
        path = self._folder(trial_id) / _file_name(name)
        _check_room(self.all(trial_id), name, len(content))
        with storage_errors(path, remedy=_REMEDY):
            path.parent.mkdir(parents=True, exist_ok=True)
            written = path.with_name(f".{secrets.token_hex(8)}")
            with written.open("xb") as file:
                file.write(content)
                file.flush()
                status = os.fstat(file.fileno())
            written.replace(path)
        return _record(name, status)

    def _folder(self, trial_id: int) -> Path:
        with self._store.reading() as session:
            return self._layout.trial(find_trial(session, trial_id)) / "artifacts"


def _file_name(name: str) -> str:
    return quote(artifact_name(name), safe=_SAFE)


def _is_plain(path: Path) -> bool:
    """Whether it is a file: without `--run-as`, a trial can put anything into its folder."""
    return stat.S_ISREG(path.lstat().st_mode)


def _record(name: str, status: os.stat_result) -> models.ArtifactRecord:
    return models.ArtifactRecord(
        name=name, num_bytes=status.st_size, time_s=status.st_mtime, content_type=content_type(name)
    )


def _check_room(kept: list[models.ArtifactRecord], name: str, num_bytes: int) -> None:
    others = [one for one in kept if one.name != name]
    total = sum(one.num_bytes for one in others) + num_bytes
    if num_bytes > MAX_BYTES:
        raise InputError(f"artifact {name!r} has {num_bytes} bytes; at most {MAX_BYTES} are kept.")
    if len(others) >= MAX_FILES or total > MAX_TRIAL_BYTES:
        raise InputError(
            f"artifact {name!r} is not kept: a trial may have {MAX_FILES} artifacts of {MAX_TRIAL_BYTES} bytes in all."
        )
