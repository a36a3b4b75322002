"""The manifest of a checkpoint: what the checkpoint is, and the size and SHA-256 of its files and of itself.

Loads no torch. Since format 2 a manifest has a checksum of its own; older ones are read with what they have.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

from trek.errors import CheckpointError
from trek.system.plain_files import NotPlainFile, open_plain, read_plain
from trek.train.checkpointing.stores import MANIFEST

FORMAT = 2
MAX_MANIFEST_BYTES = 64 << 20
"""That of a checkpoint of ten thousand ranks has a twentieth of it."""
OWN_CHECKSUM = "manifest_sha256"
_UNKNOWN = "0" * 64
"""Stands for the manifest's own checksum where that is computed."""
_FIELDS: dict[str, type] = {"uuid": str, "batches": int, "metrics": dict, "world_size": int, "files": dict}
_MAX_THREADS = 4
_PART_BYTES = 1 << 20
_FILE_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")


def write_manifest(folder: Path, entries: Mapping[str, Any]) -> None:
    """Write the manifest of the files in `folder`; returns when it is complete."""
    text = json.dumps({"format": FORMAT, OWN_CHECKSUM: _UNKNOWN, **entries}, indent=1)
    own = hashlib.sha256(text.encode()).hexdigest()
    (folder / MANIFEST).write_text(text.replace(_UNKNOWN, own, 1))


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of the checkpoint in `folder`; CheckpointError if it is missing, damaged or of another format."""
    try:
        raw = read_plain(folder / MANIFEST, max_bytes=MAX_MANIFEST_BYTES)
        manifest = json.loads(raw)
        version = manifest["format"]
    except (FileNotFoundError, NotADirectoryError):
        raise CheckpointError(f"{folder} is not a checkpoint: it has no {MANIFEST}.") from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise CheckpointError(f"the manifest of checkpoint {folder} cannot be read: {error}.") from error
    if version not in (1, FORMAT):
        raise CheckpointError(
            f"checkpoint {folder} has format {version}, but this version of Trek reads formats 1 to {FORMAT}. "
            "Use the version of Trek that wrote it."
        )
    if version == FORMAT and not _is_whole(raw, manifest):
        raise CheckpointError(f"checkpoint {folder} is damaged: {MANIFEST} does not match its own checksum.")
    _check_fields(folder, manifest)
    return dict(manifest)


def verify_files(folder: Path, manifest: Mapping[str, Any], names: Iterable[str] | None = None) -> None:
    """Raise CheckpointError unless the files `names`, or all, are as the manifest says. Hashes several at a time."""
    if names is None:
        names = list(manifest["files"])
        if missing := next((name for name in _always_there(manifest) if name not in manifest["files"]), None):
            raise CheckpointError(f"checkpoint {folder} is incomplete: its {MANIFEST} does not list {missing}.")
    with ThreadPoolExecutor(_MAX_THREADS, thread_name_prefix="trek-verify") as pool:
        for _ in pool.map(lambda name: _verify_file(folder, manifest, name), names):
            pass


def checksum(path: Path) -> str:
    """SHA-256 of a regular file."""
    with open_plain(path) as file:
        return _digest(file, num_bytes=os.fstat(file.fileno()).st_size)


def _verify_file(folder: Path, manifest: Mapping[str, Any], name: str) -> None:
    facts, path = manifest["files"].get(name), folder / name
    if facts is None or not _FILE_NAME.fullmatch(name):
        raise CheckpointError(f"checkpoint {folder} is incomplete: its {MANIFEST} does not list {name}.")
    incomplete = CheckpointError(f"checkpoint {folder} is incomplete: {name} is missing or has the wrong size.")
    try:
        file = open_plain(path)
    except (FileNotFoundError, NotADirectoryError, NotPlainFile):
        raise incomplete from None
    with file:
        if os.fstat(file.fileno()).st_size != facts["bytes"]:
            raise incomplete
        if _digest(file, num_bytes=facts["bytes"]) != facts["sha256"]:
            raise CheckpointError(f"checkpoint {folder} is damaged: {name} does not match its checksum.")


def _digest(file: BinaryIO, *, num_bytes: int) -> str:
    """SHA-256 of the first `num_bytes`. Not of mapped memory, and no further: another process may cut or extend it."""
    found = hashlib.sha256()
    while num_bytes > 0 and (part := file.read(min(num_bytes, _PART_BYTES))):
        found.update(part)
        num_bytes -= len(part)
    return found.hexdigest()


def _is_whole(raw: bytes, manifest: Mapping[str, Any]) -> bool:
    """Compares the text, not the values: every byte of it counts."""
    own = str(manifest.get(OWN_CHECKSUM))
    text = raw.replace(own.encode(), _UNKNOWN.encode(), 1)
    return len(own) == len(_UNKNOWN) and hashlib.sha256(text).hexdigest() == own


def _check_fields(folder: Path, manifest: Mapping[str, Any]) -> None:
    for name, kind in _FIELDS.items():
        if not isinstance(manifest.get(name), kind):
            raise CheckpointError(f"the manifest of checkpoint {folder} is invalid: {name!r} is not a {kind.__name__}.")
    for name, facts in manifest["files"].items():
        if not isinstance(facts, dict) or not {"bytes", "sha256"} <= set(facts):
            raise CheckpointError(f"the manifest of checkpoint {folder} is invalid: {name!r} has no size and checksum.")


def _always_there(manifest: Mapping[str, Any]) -> Iterable[str]:
    """Files that every checkpoint has, however many models it holds."""
    yield from ("state.json", "state.safetensors")
    for rank in range(manifest["world_size"]):
        yield from (f"rank_{rank}.json", f"rank_{rank}.safetensors")
