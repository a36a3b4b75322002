"""Snapshots: one that cannot be written or read is one sentence, and leaves what was there before."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError

from trek.errors import CheckpointError, InputError, StorageError
from trek.ps import snapshot
from trek.ps.server_state import Mode, ServerState
from trek.ps.snapshot import read_snapshot, write_snapshot


def state_of(value: float) -> ServerState:
    state = ServerState()
    state.initialize({("w", 0): torch.full((3,), value)}, mode=Mode())
    return state


def full(*_: Any) -> None:
    raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")


def full_later(path: Path, _: str) -> None:
    raise OSError(errno.ENOSPC, "No space left on device", str(path))


def read(folder: Path) -> list[float]:
    found: list[float] = read_snapshot(folder, server=0, num_servers=1, spill=None).dense["w", 0].value.tolist()
    return found


@pytest.mark.parametrize("step", ["tensors", "document"])
def test_a_full_disk_leaves_the_snapshot_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    write_snapshot(state_of(1), tmp_path, server=0)
    before = sorted(tmp_path.iterdir())
    if step == "tensors":
        monkeypatch.setattr(snapshot, "save_file", full)
    else:
        monkeypatch.setattr(Path, "write_text", full_later)
    with pytest.raises(StorageError, match=r"cannot write its state to .*No space left.*Free some space"):
        write_snapshot(state_of(2), tmp_path, server=0)
    assert sorted(tmp_path.iterdir()) == before
    assert read(tmp_path) == [1, 1, 1]


@pytest.mark.parametrize(("name", "contents"), [("json", "{"), ("json", "{}"), ("json", "[]"), ("safetensors", "x")])
def test_a_damaged_snapshot_is_named(tmp_path: Path, name: str, contents: str) -> None:
    write_snapshot(state_of(1), tmp_path, server=0)
    (tmp_path / f"server-00000.{name}").write_text(contents)
    with pytest.raises(CheckpointError, match="incomplete or damaged"):
        read(tmp_path)


@pytest.mark.parametrize(("server", "num_servers"), [(0, 0), (9, 2), (-1, 2)])
def test_a_server_that_there_cannot_be_is_not_restored(tmp_path: Path, server: int, num_servers: int) -> None:
    write_snapshot(state_of(1), tmp_path, server=0)
    with pytest.raises(InputError, match=f"got {server}"):
        read_snapshot(tmp_path, server=server, num_servers=num_servers, spill=None)
