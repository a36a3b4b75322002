"""Saved logins: one token per master, in a file that only its owner can read."""

from __future__ import annotations

import json
import os
from pathlib import Path

from trek.errors import StorageError
from trek.system.home import claim_home

_NAME = "logins.json"


def saved_token(url: str, *, home: Path) -> str:
    """The token saved for the master at `url`; empty if there is none."""
    return _read(home).get(url, "")


def save_token(url: str, token: str | None, *, home: Path) -> None:
    """Save a token for the master at `url`; None deletes it."""
    logins = _read(home)
    logins.pop(url, None)
    if token is not None:
        logins[url] = token
    partial = home / f"{_NAME}.{os.getpid()}"
    try:
        claim_home(home)
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(logins, file)
        partial.replace(home / _NAME)
    except OSError as error:
        raise StorageError(f"cannot save the login in {str(home)!r}: {error.strerror}.") from error


def _read(home: Path) -> dict[str, str]:
    try:
        saved = json.loads((home / _NAME).read_text())
    except (OSError, ValueError):
        return {}
    return {str(url): str(token) for url, token in saved.items()} if isinstance(saved, dict) else {}
