"""The folder in which Trek keeps its files, and that it belongs to its owner alone."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from trek.errors import InputError, StorageError

OTHERS = 0o077
"""Permissions of the group and of everybody else; as a umask, it withholds them from new files."""
_TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - compared, not used


def trek_home(environ: Mapping[str, str] = os.environ) -> Path:
    """`$TREK_HOME`, or `~/.trek`. Not created here: see `claim_home`.

    A relative one is that of the working directory at the first call, for this process and those that it starts.
    """
    home = Path(environ.get("TREK_HOME") or "~/.trek").expanduser()
    if home.is_absolute():
        return home
    absolute = Path.cwd() / home
    print(
        f"trek: warning: TREK_HOME {str(home)!r} is relative: every folder has its own. Using {str(absolute)!r}; "
        "set it to an absolute path.",
        file=sys.stderr,
        flush=True,
    )
    if environ is os.environ:
        os.environ["TREK_HOME"] = str(absolute)
    return absolute


def claim_home(home: Path) -> Path:
    """Create the home, for its owner alone. An existing one that others can enter is closed to them, with a warning.

    Whoever writes to a home calls this first: it holds passwords, tokens, code and models.
    """
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = home.stat().st_mode
        if not mode & OTHERS:
            return home
        _check_is_own(home)
        # The home first: as soon as it is closed, nothing in it can be reached.
        for path in (home, *home.iterdir()):
            _withhold(path)
    except OSError as error:
        raise StorageError(
            f"cannot create the folder {str(home)!r} or close it to other users: {error.strerror}. "
            "Set TREK_HOME to a folder of your own."
        ) from error
    print(
        f"trek: warning: {str(home)!r} was open to other users (mode {stat.S_IMODE(mode):03o}); "
        "it is now accessible to its owner only. Passwords and tokens in it may have been read.",
        file=sys.stderr,
        flush=True,
    )
    return home


def close_to_others(folder: Path) -> None:
    """Withhold `folder` and everything in it from other users. What disappears meanwhile is ignored."""
    for root, folders, files in os.walk(folder):
        for path in (Path(root), *(Path(root, name) for name in (*folders, *files))):
            _withhold(path)


def _check_is_own(home: Path) -> None:
    """Closing a folder for temporary files would disturb every other program."""
    if home.resolve() in {Path(name).resolve() for name in (tempfile.gettempdir(), *_TEMPORARY)}:
        raise InputError(
            f"TREK_HOME {str(home)!r} is a folder that all users share. "
            "Set it to a folder of your own, which may be inside that one."
        )


def _withhold(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
        if mode & OTHERS and not stat.S_ISLNK(mode):
            path.chmod(stat.S_IMODE(mode) & ~OTHERS)
    except FileNotFoundError:
        return
