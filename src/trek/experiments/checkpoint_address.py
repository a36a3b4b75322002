"""The address of one checkpoint, a folder or a URL: fetching and removing what it names."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trek.errors import StorageError
from trek.system.urls import is_remote, local_path
from trek.train.checkpointing.stores import Storage, open_storage


def open_uncached(place: str) -> Storage:
    """The Storage at `place` with cached listings discarded, because other processes write there too."""
    storage = open_storage(place)
    storage.refresh()
    return storage


def fetch_checkpoint(address: str, *, into: Path | None = None) -> Path:
    """A local folder with the checkpoint's files: the stored ones, or a copy in `into` or in a temporary folder."""
    if not is_remote(address):
        return local_path(address)
    try:
        storage, name = _parts(address)
        folder = storage.fetch(name)
    except Exception as error:  # every store has its own exceptions
        raise StorageError(f"the checkpoint at {address} cannot be fetched: {error}.") from error
    if into is None:
        return folder
    moved = Path(shutil.move(folder, into))
    _remove_copy(folder)
    return moved


@contextmanager
def borrowed_checkpoint(address: str) -> Iterator[Path]:
    """A local folder with the checkpoint's files: the stored ones, or a copy that is removed when the block ends."""
    folder = fetch_checkpoint(address)
    try:
        yield folder
    finally:
        if is_remote(address):
            _remove_copy(folder)


def remove_checkpoint(address: str) -> None:
    """Remove the checkpoint's files. Missing files are ignored; of a link, the link itself is removed."""
    try:
        storage, name = _parts(address)
        storage.delete(name)
    except Exception as error:  # every store has its own exceptions
        raise StorageError(f"the checkpoint at {address} cannot be removed: {error}.") from error


def _remove_copy(folder: Path) -> None:
    """A Storage fetches into a temporary folder that it creates for each copy."""
    shutil.rmtree(folder.parent, ignore_errors=True)


def _parts(address: str) -> tuple[Storage, str]:
    place, _, name = address.rstrip("/").rpartition("/")
    return open_uncached(place), name
