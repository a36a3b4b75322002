"""What the parents of one environment must not import, and why: a file beside their folder.

A refusal is of a module, not of the environment: members that do not need it start warm all the same. It holds for an
hour, since what made an import fail (a full disk, too little memory) may have passed.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

HOLDS_S = 3600.0
SUFFIX = ".refused"


def read_refusals(parent_folder: Path) -> dict[str, str]:
    """The refused modules of the parent with this folder, with the reasons."""
    path = _file(parent_folder)
    try:
        if time.time() - path.stat().st_mtime >= HOLDS_S:
            return {}
        return {str(name): str(reason) for name, reason in json.loads(path.read_text()).items()}
    except (FileNotFoundError, ValueError):  # a damaged file is no reason to refuse
        return {}


def add_refusal(parent_folder: Path, module: str, *, reason: str) -> None:
    """Refuse a module from now on."""
    path = _file(parent_folder)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(json.dumps({**read_refusals(parent_folder), module: reason}))
    partial.replace(path)


def remove_refusals(folder: Path) -> None:
    """Forget those of all parents in `folder`."""
    for path in folder.glob(f"*{SUFFIX}"):
        path.unlink(missing_ok=True)


def _file(parent_folder: Path) -> Path:
    return parent_folder.with_name(parent_folder.name + SUFFIX)
