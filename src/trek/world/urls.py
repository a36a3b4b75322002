"""What is a URL of another file system, and what is a path of this machine."""

from __future__ import annotations

_FILE_SCHEME = "file://"


def is_remote(address: str) -> bool:
    """Whether `address` is a URL of another file system than this machine's. `file://` URLs are local."""
    return "://" in address and not address.startswith(_FILE_SCHEME)


def local_path(address: str) -> str:
    """The path that a local `address`, with or without `file://`, names."""
    return address.removeprefix(_FILE_SCHEME)
