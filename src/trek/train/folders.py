"""Folders of runs under `$TREK_HOME/runs`: one for each run, none ever written over."""

from __future__ import annotations

from itertools import count
from pathlib import Path

from trek.errors import ConfigError
from trek.world import World, trek_home


def open_run_folder(name: str, *, world: World | None, is_resumed: bool) -> Path:
    """The run's folder, made where it is new and this process is the one that writes.

    Of processes that were started together only the leader makes one: the others write nothing, and a folder each
    would hide the leader's from a resume.
    """
    return new_run_folder(name, is_resumed=is_resumed or (world is not None and not world.is_leader))


def new_run_folder(name: str, *, is_resumed: bool = False) -> Path:
    """A new folder `name`, `name-2`, `name-3`, …; the last of these when the run goes on."""
    if not name or "/" in name or name.startswith("."):
        raise ConfigError(f"a run's name becomes a folder and must be a plain word, got {name!r}.")
    runs = trek_home() / "runs"
    last = runs / name
    for folder in (runs / (name if number == 1 else f"{name}-{number}") for number in count(1)):
        if is_resumed and not folder.exists():
            break
        last = folder
        if not is_resumed and _made(folder):
            break
    return last


def _made(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        return False
    return True
