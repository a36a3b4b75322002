"""Provenance, so that a run can be reproduced: versions, machine, and the state of the source tree. Read-only."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from trek._version import __version__
from trek.client.wire_values import printable

MAX_DIFF = 200_000


def provenance(folder: Path) -> dict[str, Any]:
    """Facts about this machine, its packages, and the git checkout that contains `folder`, if there is one."""
    return {
        "trek": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": platform.node(),
        "cpus": os.cpu_count(),
        "packages": _packages(),
        "git": _git(folder),
    }


def _packages() -> dict[str, str]:
    """Every installed package and its version."""
    found = {one.metadata["Name"]: one.version for one in metadata.distributions(path=_places())}
    return {name: found[name] for name in sorted(filter(None, found), key=str.lower)}


def _places() -> list[str]:
    """Where Python looks for packages, without what a package that is loaded brings along in a folder of its own."""
    installed = {Path(place) for place in sys.path if Path(place).name in ("site-packages", "dist-packages")}
    return [place for place in sys.path if not installed & set(Path(place).parents)]


def _git(folder: Path) -> dict[str, Any] | None:
    commit = _run_git(folder, "rev-parse", "HEAD")
    if commit is None:
        return None
    diff = _run_git(folder, "diff", "HEAD", "--", ".") or ""
    return {"commit": commit, "branch": _run_git(folder, "rev-parse", "--abbrev-ref", "HEAD"), "diff": diff[:MAX_DIFF]}


def _run_git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    return printable(done.stdout.strip()) if done.returncode == 0 else None
