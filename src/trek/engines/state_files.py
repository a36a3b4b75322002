"""Files in a gang's `output_dir` by which it is found again: JSON, in folders where members may have put anything."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trek.errors import InputError
from trek.system.plain_files import read_plain, write_plain

MAX_STATE_BYTES = 16 << 20


def read_state(path: Path, *keys: str) -> dict[str, Any]:
    """The JSON object in `path`, which must have `keys`; FileNotFoundError if there is no such file.

    InputError if it is damaged, which must not end the program that looks for its gangs.
    """
    try:
        state = json.loads(read_plain(path, max_bytes=MAX_STATE_BYTES))
    except FileNotFoundError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{str(path)!r} cannot be read, so its gang is not found: {error}.") from error
    if not isinstance(state, dict) or not state.keys() >= {*keys}:
        raise InputError(f"{str(path)!r} does not describe a gang: it must have {', '.join(keys)}.")
    return state


def write_state(path: Path, state: Mapping[str, Any]) -> None:
    """Write the JSON object, which only the owner can read: it may hold the secret of a job."""
    write_plain(path, json.dumps(state).encode())
