"""Addresses: which are URLs of another place, and which are paths of this machine. Opens nothing."""

from __future__ import annotations

import re
from pathlib import Path

_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*)::?(?=//|.+://)")  # `simplecache::s3://…` is fsspec's chaining


def scheme_of(address: str) -> str:
    """The scheme of a URL in lower case; "file" for a path."""
    match = _SCHEME.match(address)
    return match[1].lower() if match else "file"


def is_remote(address: str) -> bool:
    """Whether `address` is a URL of another place than this machine's file system."""
    return scheme_of(address) != "file"


def local_path(address: Path | str) -> Path:
    """The path that `address` is, with or without `file://` before it."""
    return Path(str(address).removeprefix("file://"))
