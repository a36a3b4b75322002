"""The files of snapshots in a folder: written under other names first, then published; which of them belong together.

Several servers that save at one point make a *cut*. Its files count once all servers have written theirs, so a cut that
fails leaves an earlier one in the same folder as it was. Every document names its cut, so parts of several are noticed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trek.errors import CheckpointError, InputError, StorageError

_PARTIAL = ".partial"


@dataclass(frozen=True)
class Cut:
    """A checkpoint of several servers; without a name, the snapshot of a server by itself."""

    name: str = ""
    num_servers: int = 1

    def __post_init__(self) -> None:
        if not re.fullmatch("[0-9a-f]{0,64}", self.name):
            raise InputError(f"the name of a checkpoint must be up to 64 hexadecimal digits, got {self.name[:80]!r}.")


def parts_of_snapshot(folder: Path, *, server: int, cut: Cut) -> tuple[Path, Path]:
    """The tensors and the document of a snapshot that is not published yet."""
    stem, suffix = f"server-{server:05d}", f".{cut.name}{_PARTIAL}" if cut.name else _PARTIAL
    return folder / f"{stem}.safetensors{suffix}", folder / f"{stem}.json{suffix}"


def publish_snapshot(folder: Path, *, server: int, cut: Cut) -> None:
    """Give a snapshot that was written its name, in the place of an earlier one; once more changes nothing."""
    parts = parts_of_snapshot(folder, server=server, cut=cut)
    tensors, document = folder / f"server-{server:05d}.safetensors", folder / f"server-{server:05d}.json"
    try:
        if not parts[1].exists() and _is_of(document, cut):
            return
        document.unlink(missing_ok=True)
        parts[0].replace(tensors)
        parts[1].replace(document)
        if cut.name and server == 0:
            _remove_servers_beyond(folder, cut.num_servers)
    except OSError as error:
        raise StorageError(
            f"a parameter server cannot write its state to {folder}: {error}. Use a folder that no other program uses."
        ) from error


def discard_snapshot(folder: Path, *, server: int, cut: Cut) -> None:
    """Remove a snapshot that was written, and will not be published."""
    for part in parts_of_snapshot(folder, server=server, cut=cut):
        with suppress(OSError):
            part.unlink(missing_ok=True)


def check_whole(folder: Path, documents: Sequence[dict[str, Any]]) -> None:
    """Raise `CheckpointError` unless the documents are those of all servers of one cut.

    Documents of older versions name no cut, and are taken as they are.
    """
    cuts = {(one["cut"], one["num_servers"]) if "cut" in one else ("", 1) for one in documents}
    if len(cuts) > 1:
        raise CheckpointError(
            f"{folder} has the states of parameter servers from {len(cuts)} checkpoints, and none of them is whole. "
            "Restore another checkpoint, and save every one to a folder of its own."
        )
    for cut, num_servers in cuts:
        if cut and len(documents) != num_servers:
            raise CheckpointError(
                f"the checkpoint in {folder} is incomplete: it has the state of {len(documents)} of {num_servers} "
                "parameter servers. Restore another one."
            )


def snapshot_documents(folder: Path) -> list[Path]:
    """The documents of published snapshots."""
    return sorted(path for path in folder.glob("server-*.json") if re.fullmatch(r"server-\d{5}", path.stem))


def _remove_servers_beyond(folder: Path, num_servers: int) -> None:
    """Those of an earlier checkpoint of more servers."""
    for document in snapshot_documents(folder)[num_servers:]:
        document.unlink(missing_ok=True)
        document.with_suffix(".safetensors").unlink(missing_ok=True)


def _is_of(document: Path, cut: Cut) -> bool:
    try:
        return bool(json.loads(document.read_text())["cut"] == cut.name)
    except (OSError, ValueError, LookupError, TypeError):  # missing, or damaged
        return False
