"""Folders of runs under `$TREK_HOME/runs`: one for each run, never overwritten by another."""

from __future__ import annotations

from itertools import count
from pathlib import Path

from trek.errors import ConfigError
from trek.world import World, claim_home, trek_home


def open_run_folder(name: str, *, world: World | None, is_resumed: bool) -> Path:
    """The run's folder; created if the run is new and this process is the one that writes.

    Of processes that were started together, only the leader creates a folder: the others write nothing, and their empty
    folders would hide the leader's when the run is resumed.
    """
    return new_run_folder(name, is_resumed=is_resumed or (world is not None and not world.is_leader))


def new_run_folder(name: str, *, is_resumed: bool = False) -> Path:
    """A new folder `name`, `name-2`, `name-3`, …; the last existing one if the run is resumed."""
    if not name or "/" in name or name.startswith("."):
        raise ConfigError(
            f"invalid name {name!r}: the name of a run becomes a folder name, so it must not be empty, contain '/' or "
            "start with '.'."
        )
    runs = claim_home(trek_home()) / "runs"
    last = runs / name
    for folder in (runs / (name if number == 1 else f"{name}-{number}") for number in count(1)):
        if is_resumed and not folder.exists():
            break
        last = folder
        if not is_resumed and _create(folder):
            break
    return last


def _create(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        return False
    return True
