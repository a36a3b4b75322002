"""Which files in a folder are a persisted table's, and the one way in which a table takes the place of another.

Only what Trek wrote is replaced: the manifest, and shards by their names. Anything else in the folder is a refusal.
"""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Iterable
from pathlib import Path

from trek.errors import InputError

MANIFEST = "manifest.json"
# Shards behind a URL have the beginning of the plan's fingerprint in front; see `remote`.
_SHARD = re.compile(r"([0-9a-f]{8}-)?shard-\d{5,}\.(parquet|arrow)")
_SHOWN = 3
_log = logging.getLogger("trek.data")


def shard_name(index: int, storage: str) -> str:
    """The name of the file that holds the partition `index`."""
    return f"shard-{index:05d}.{storage}"


def is_shard(name: str) -> bool:
    """Whether a file's name is one that Trek gives to shards."""
    return _SHARD.fullmatch(name) is not None


def require_replaceable(place: str | Path, names: Iterable[str]) -> None:
    """Refuse to replace a folder at `place` that holds `names`, unless a persisted table is all that it is.

    A manifest alone is refused: programs of other kinds have files of that name too.
    """
    found = sorted(names)
    others = [name for name in found if name != MANIFEST and not is_shard(name)]
    if MANIFEST not in found or found == [MANIFEST]:
        others = found
    if others:
        shown = ", ".join(others[:_SHOWN]) + (f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else "")
        raise InputError(
            f"{place} holds files that are not of a persisted table ({shown}), so it is not overwritten. "
            "Choose another path, or move them away."
        )


def require_replaceable_folder(path: Path) -> None:
    """Refuse to replace what is at `path`, unless it is a persisted table, an empty folder or nothing."""
    if path.is_dir():
        require_replaceable(path, (f"{entry.name}/" if entry.is_dir() else entry.name for entry in path.iterdir()))
    elif path.exists():
        raise InputError(f"{path} is a file and not a persisted table, so it is not overwritten. Choose another path.")


def replace_table(path: Path, complete: Path) -> None:
    """Give the folder `complete` the name `path`; between the two renames there is nothing, never part of a table."""
    require_replaceable_folder(path)
    old = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.old")
    if path.exists():
        path.rename(old)
    complete.rename(path)
    if old.exists():
        remove_table(old)


def remove_table(folder: Path) -> None:
    """Remove a persisted table, and nothing that another program put beside its files."""
    try:
        for entry in list(folder.iterdir()):
            if entry.name == MANIFEST or is_shard(entry.name):
                entry.unlink()
        folder.rmdir()
    except OSError as error:
        _log.warning("the replaced table %s could not be removed: %s", folder, error)
