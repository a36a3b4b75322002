"""The address of one checkpoint, a folder or a URL, and what can be done with either: fetch it, remove it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trek.errors import StorageError
from trek.train.checkpointing.storage import Storage, open_storage


def is_remote(address: str) -> bool:
    """Whether it is reached through fsspec."""
    return "://" in address and not address.startswith("file://")


def open_anew(place: str) -> Storage:
    """The Storage at `place`, as it is now: other processes write there, and fsspec remembers what it once listed."""
    if is_remote(place):
        import fsspec

        fsspec.core.url_to_fs(place)[0].invalidate_cache()
    return open_storage(place)


def fetch_checkpoint(address: str, *, into: Path | None = None) -> Path:
    """A local folder with its files: its own, or a copy, which is `into` or lasts as long as this process."""
    if not is_remote(address):
        return Path(address.removeprefix("file://"))
    try:
        storage, name = _parts(address)
        folder = storage.fetch(name)
    except Exception as error:  # every store has exceptions of its own
        raise StorageError(f"the checkpoint at {address} cannot be fetched: {error}.") from error
    if into is None:
        return folder
    moved = Path(shutil.move(folder, into))
    _forget_copy(folder)
    return moved


@contextmanager
def borrowed_checkpoint(address: str) -> Iterator[Path]:
    """A local folder with its files for as long as the block lasts: its own, or a copy that is removed after it."""
    folder = fetch_checkpoint(address)
    try:
        yield folder
    finally:
        if is_remote(address):
            _forget_copy(folder)


def remove_checkpoint(address: str) -> None:
    """Remove its files; no error where they are gone already."""
    if not is_remote(address):
        shutil.rmtree(address.removeprefix("file://"), ignore_errors=True)
        return
    try:
        storage, name = _parts(address)
        storage.delete(name)
    except Exception as error:  # every store has exceptions of its own
        raise StorageError(f"the checkpoint at {address} cannot be removed: {error}.") from error


def _forget_copy(folder: Path) -> None:
    """What a Storage fetched lies in a temporary folder of that Storage's own."""
    shutil.rmtree(folder.parent, ignore_errors=True)


def _parts(address: str) -> tuple[Storage, str]:
    place, _, name = address.rstrip("/").rpartition("/")
    return open_anew(place), name
