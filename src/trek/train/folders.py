"""Folders of runs under `$TREK_HOME/runs`: one for each run, never overwritten by another."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

from filelock import FileLock

from trek.elastic.joining import agree, is_elastic
from trek.engines.member_folder import NO_SHARED_DISK
from trek.errors import ConfigError, InputError, NotFound
from trek.strategies import Strategy
from trek.system.home import claim_home, trek_home
from trek.system.urls import is_remote
from trek.train.checkpointing.checkpoint_folder import CheckpointFolder
from trek.train.checkpointing.stores import Storage
from trek.world import World

_MAX_NAME_BYTES = 200
"""File systems allow 255, of which `-2`, `-3`, … and the names of files beside the folder need some."""


def open_run_folder(name: str, *, world: World | None, is_resumed: bool) -> Path | None:
    """The run's folder; created unless `is_resumed`, in which case it must exist.

    Of processes that were started together, only the leader opens a folder. For the others it is None: they learn the
    leader's when they have joined it, since any folder they could find by themselves may be that of an earlier run.
    Where any worker may become the leader, all have the folder of the one that was there first.
    """
    check_run_name(name)
    if world is not None and is_elastic():
        return _agreed_folder(name, world=world, is_resumed=is_resumed)
    return None if world is not None and not world.is_leader else new_run_folder(name, is_resumed=is_resumed)


def _agreed_folder(name: str, *, world: World, is_resumed: bool) -> Path:
    key = f"run folder {name}"
    with FileLock(claim_home(trek_home()) / "run-folders.lock"):  # workers of one machine do not make several
        agreed = agree(key, None, world=world)
        if agreed is None:
            own = new_run_folder(name, is_resumed=is_resumed)
            agreed = agree(key, str(own), world=world)
            if agreed != str(own) and not is_resumed:
                own.rmdir()
    return Path(agreed)


def check_reached(checkpoint_dir: Path | str | None, *, environ: Mapping[str, str] = os.environ) -> None:
    """Refuse to train on a machine that cannot write where the one that started the run looks for checkpoints."""
    is_far = environ.get(NO_SHARED_DISK) == "1"
    if is_far and checkpoint_dir is not None and not is_remote(str(checkpoint_dir)):
        raise InputError(
            f"{str(checkpoint_dir)!r} does not exist on {socket.gethostname()}, where this worker runs, so its "
            "checkpoints would be lost. Set checkpoint_dir or checkpoint_storage.url to a URL such as "
            "s3://bucket/runs, or TREK_HOME to a folder that all nodes share."
        )


def leaders_folders(strategy: Strategy, *folders: Path | str | None) -> list[str | None]:
    """The leader's `folders`, on every rank; all processes of a run use the same ones."""
    paths: list[str | None] = strategy.broadcast([None if one is None else str(one) for one in folders])
    return paths


def leaders_places(
    strategy: Strategy, folder: Path | str, checkpoint_dir: Path | str | Storage | None
) -> tuple[str | None, str | Storage | None]:
    """The leader's folder and place of checkpoints; a Storage is each process's own way to the place all have."""
    if isinstance(checkpoint_dir, Storage):
        return leaders_folders(strategy, folder)[0], checkpoint_dir
    own, place = leaders_folders(strategy, folder, checkpoint_dir)
    return own, place


def new_run_folder(name: str, *, is_resumed: bool = False) -> Path:
    """A new folder `name`, `name-2`, `name-3`, …; the last existing one if the run is resumed."""
    check_run_name(name)
    runs = claim_home(trek_home()) / "runs"
    last = None
    for folder in (runs / (name if number == 1 else f"{name}-{number}") for number in count(1)):
        if is_resumed and not folder.exists():
            break
        last = folder
        if not is_resumed and _create(folder):
            break
    if last is None:
        raise NotFound(
            f"resume='latest' found no run named {name!r} in {runs}. Check the name, or train without resume."
        )
    return last


def job_key(folder: Path | None) -> str:
    """What identifies the job whose run writes to `folder`: kept there, so that a resumed run has the same key.

    A run without a folder of its own is always a new job.
    """
    key = uuid.uuid4().hex
    if folder is None:
        return key
    path = folder / "job-id"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with path.open("x") as file:
            file.write(key)
    except FileExistsError:
        return path.read_text().strip() or key
    return key


def check_places(*, checkpoint_dir: Any, resume: Any) -> None:
    """Raise `ConfigError` unless these arguments of `fit`, `run` and the Traveler can name a place."""
    if checkpoint_dir is not None and not isinstance(checkpoint_dir, str | Path | Storage):
        raise ConfigError(f"checkpoint_dir must be a folder or a URL, got {checkpoint_dir!r}.")
    if resume is not None and not isinstance(resume, str | Path | CheckpointFolder):
        raise ConfigError(f"resume must be a checkpoint, its path, or 'latest', got {resume!r}.")


def check_run_name(name: str) -> None:
    """Raise `ConfigError` unless a run may have this name."""
    if not isinstance(name, str):
        raise ConfigError(f"the name of a run must be text, got {name!r}.")
    if len(name.encode()) > _MAX_NAME_BYTES:
        raise ConfigError(
            f"the name of a run becomes a folder name, so it must have at most {_MAX_NAME_BYTES} bytes, got "
            f"{len(name.encode())}: {name[:40]!r}…. Choose a shorter one."
        )
    if not name or "/" in name or "\0" in name or name.startswith("."):
        raise ConfigError(
            f"invalid name {name!r}: the name of a run becomes a folder name, so it must not be empty, contain '/' or "
            "start with '.'."
        )


def _create(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        return False
    return True
