"""The folder in which Trek keeps its files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def trek_home(environ: Mapping[str, str] = os.environ) -> Path:
    """`$TREK_HOME`, or `~/.trek`. Not created here: the first writer creates what it needs."""
    return Path(environ.get("TREK_HOME") or "~/.trek").expanduser()
