"""Which user of the operating system the processes of a trial run as, and the folders that such a user needs.

Without `--run-as` every trial runs as the user of the control plane, and can read what that user can read. With it, the
control plane must be root: it keeps its home to itself and starts each trial as somebody else. What the control plane
reads and writes for such a trial lies in folders of its own; the trial owns only the leaves, so it can put no link into
the way of root.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trek.control.layout import Layout
from trek.control.tables import TrialRow
from trek.engines import OsUser
from trek.errors import InputError

OWNER = "owner"
"""The choice that maps the owner of an experiment to the system's user of the same name."""
MIN_OWNER_UID = 1000
"""System accounts below it are never chosen by the name of an owner."""


@dataclass(frozen=True)
class RunAs:
    """`owner`, or the name of one user for all trials."""

    choice: str

    def user_of(self, owner: str) -> OsUser:
        """The user that trials of `owner` run as; InputError if there is none, or it must not be used."""
        is_by_owner = self.choice == OWNER
        name = owner if is_by_owner else self.choice
        try:
            found = pwd.getpwnam(name)
        except (KeyError, ValueError):
            whose = f" of {owner!r}" if owner else ""
            raise InputError(
                f"trials{whose} would run as the system's user {name!r}, which does not exist. "
                "Create it with useradd, or start the master with another --run-as."
            ) from None
        if found.pw_uid == 0 or (is_by_owner and found.pw_uid < MIN_OWNER_UID):
            raise InputError(f"trials must not run as {name!r} (uid {found.pw_uid}), which is a system account.")
        groups = tuple(os.getgrouplist(name, found.pw_gid))
        return OsUser(name, uid=found.pw_uid, gid=found.pw_gid, groups=groups)


def check_run_as(run_as: RunAs, *, layout: Layout, programs: Sequence[Path] = ()) -> None:
    """InputError unless this process may start processes of others, and they can reach their folders and programs."""
    if os.geteuid() != 0:
        raise InputError("--run-as requires that the master runs as root, since only root can start others' processes.")
    if run_as.choice != OWNER:
        run_as.user_of("")
    if closed := _closed_folder(layout.trials):
        raise InputError(
            f"the folders of trials would be in {str(layout.trials)!r}, and other users cannot pass through "
            f"{str(closed)!r}. Set TREK_HOME to a folder such as /var/lib/trek."
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


def make_folders(layout: Layout, trial: TrialRow, *, user: OsUser) -> None:
    """The folders of a trial's current run: passages that are the master's, and leaves that are the user's alone."""
    for passage in (layout.trials, layout.trial(trial), layout.run(trial), layout.user_homes):
        passage.mkdir(parents=True, exist_ok=True)
        passage.chmod(0o711)
    for leaf in (
        layout.work(trial),
        layout.trial(trial) / "checkpoints",
        layout.user_homes / user.name,
    ):
        leaf.mkdir(exist_ok=True)
        leaf.chmod(0o700)
        os.chown(leaf, user.uid, user.gid, follow_symlinks=False)
    _give(layout.trial(trial) / "start", user)


def make_own_home(layout: Layout) -> Path:
    """The TREK_HOME of trials that run as the control plane's own user: its caches, without its token."""
    home = layout.user_homes / "own"
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in ("cache", "data"):
        (layout.home / name).mkdir(exist_ok=True)
        if not (home / name).is_symlink():
            (home / name).symlink_to(layout.home / name, target_is_directory=True)
    return home


def _give(folder: Path, user: OsUser) -> None:
    """The copy of a checkpoint that a trial starts from, made by the master."""
    for parent, _, names in os.walk(folder):
        for path in (Path(parent), *(Path(parent) / name for name in names)):
            os.chown(path, user.uid, user.gid, follow_symlinks=False)
