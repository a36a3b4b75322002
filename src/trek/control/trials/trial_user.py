"""The folders of trials, for the user of the operating system that the processes of a trial run as.

Without `--run-as` every trial runs as the user of the control plane, and can read what that user can read. With it, the
control plane must be root: it keeps its home to itself and starts each trial as another user. The trial owns only the
leaves of its folders. Below a leaf, the control plane touches nothing as root: see `file_rights`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from trek.control.file_rights import check_file_rights
from trek.control.layout import Layout
from trek.control.run_as import OWNER, RunAs
from trek.control.tables import TrialRow
from trek.engines import OsUser
from trek.errors import InputError


def check_run_as(run_as: RunAs, *, layout: Layout, programs: Sequence[Path] = ()) -> None:
    """InputError unless this process may start processes of others, and they can reach their folders and programs."""
    if os.geteuid() != 0:
        raise InputError("--run-as requires that the master runs as root, since only root can start others' processes.")
    check_file_rights()
    if run_as.choice != OWNER:
        run_as.user_of("")
    if closed := _closed_folder(layout.trials):
        raise InputError(
            f"the folders of trials would be in {str(layout.trials)!r}, and other users cannot pass through "
            f"{str(closed)!r}. Set TREK_HOME to a folder such as /var/lib/trek."
        )
    if shared := _shared_folder(layout.trials):
        raise InputError(
            f"the folders of trials would be in {str(layout.trials)!r}, and other users can replace what is in "
            f"{str(shared)!r}. Set TREK_HOME to a folder such as /var/lib/trek."
        )
    for program in programs:
        if closed := _closed_folder(program):
            raise InputError(
                f"trials of other users need {str(program)!r}, and they cannot pass through {str(closed)!r}. "
                "Install Python and Trek where every user can read them, such as under /opt."
            )


def _closed_folder(path: Path) -> Path | None:
    """The first folder on the way to `path` that only its owner can pass through."""
    return next((one for one in path.parents if one.exists() and not one.stat().st_mode & 0o001), None)


def _shared_folder(path: Path) -> Path | None:
    """The first folder on the way to `path` in which other users can replace folders that are not theirs."""
    modes = ((one, one.stat()) for one in path.parents if one.exists())
    return next((one for one, facts in modes if facts.st_uid != 0 or _is_open(facts.st_mode)), None)


def _is_open(mode: int) -> bool:
    return bool(mode & (stat.S_IWGRP | stat.S_IWOTH)) and not mode & stat.S_ISVTX


def make_folders(layout: Layout, trial: TrialRow, *, user: OsUser) -> None:
    """The folders of a trial's current run: passages that are the master's, and leaves that are the user's alone."""
    make_passages(layout.trials, layout.trial(trial), layout.run(trial), layout.user_homes)
    for leaf in (
        layout.work(trial),
        layout.trial(trial) / "checkpoints",
        layout.user_homes / user.name,
    ):
        make_leaf(leaf, user=user)


def make_passages(*folders: Path) -> None:
    """Folders of the master that others can pass through, but neither list nor change."""
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        _check_is_own(folder)
        folder.chmod(0o711)


def _check_is_own(folder: Path) -> None:
    """Where all users may make folders, such as in /tmp, another one may have made it first."""
    facts = folder.lstat()
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid():
        raise InputError(
            f"{str(folder)!r} must be a folder of the master, and belongs to user {facts.st_uid}. "
            "Move it away, or set TREK_HOME to a folder such as /var/lib/trek."
        )


def make_leaf(folder: Path, *, user: OsUser) -> None:
    """A folder of the user alone. It lies in a passage, where no other user can replace it."""
    folder.mkdir(exist_ok=True)
    folder.chmod(0o700)
    os.chown(folder, user.uid, user.gid, follow_symlinks=False)


def make_own_home(layout: Layout) -> Path:
    """The TREK_HOME of trials that run as the control plane's own user: its caches, without its token."""
    home = layout.user_homes / "own"
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in ("cache", "data"):
        (layout.home / name).mkdir(exist_ok=True)
        if not (home / name).is_symlink():
            (home / name).symlink_to(layout.home / name, target_is_directory=True)
    return home
