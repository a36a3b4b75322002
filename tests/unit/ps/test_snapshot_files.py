"""Checkpoints of several servers: whole, or an error, and an earlier one stays until the next is written by all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trek.errors import CheckpointError, InputError, StorageError
from trek.ps.snapshot_files import Cut, check_whole, discard_snapshot, parts_of_snapshot, publish_snapshot

FIRST, SECOND = Cut("aa", 2), Cut("bb", 2)


def write(folder: Path, server: int, cut: Cut) -> None:
    tensors, document = parts_of_snapshot(folder, server=server, cut=cut)
    tensors.write_text(cut.name)
    document.write_text(json.dumps({"cut": cut.name, "num_servers": cut.num_servers}))


def documents(folder: Path) -> list[dict[str, object]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("server-*.json"))]


def test_what_is_written_counts_once_it_is_published(tmp_path: Path) -> None:
    for cut in (FIRST, SECOND):
        before = documents(tmp_path)
        for server in (0, 1):
            write(tmp_path, server, cut)
        assert documents(tmp_path) == before
        for server in (0, 1):
            publish_snapshot(tmp_path, server=server, cut=cut)
            publish_snapshot(tmp_path, server=server, cut=cut)  # repeated, since the answer was lost
        check_whole(tmp_path, documents(tmp_path))
        assert {str(one["cut"]) for one in documents(tmp_path)} == {cut.name}
    assert len(list(tmp_path.iterdir())) == 4
    assert (tmp_path / "server-00001.safetensors").read_text() == SECOND.name


def test_what_is_discarded_leaves_nothing(tmp_path: Path) -> None:
    write(tmp_path, 0, FIRST)
    discard_snapshot(tmp_path, server=0, cut=FIRST)
    discard_snapshot(tmp_path, server=1, cut=FIRST)
    assert not list(tmp_path.iterdir())
    with pytest.raises(StorageError, match="no other program"):
        publish_snapshot(tmp_path, server=0, cut=FIRST)


def test_servers_of_an_earlier_checkpoint_of_more_are_removed(tmp_path: Path) -> None:
    for cut in (Cut("aa", 3), Cut("bb", 1)):
        for server in range(cut.num_servers):
            write(tmp_path, server, cut)
            publish_snapshot(tmp_path, server=server, cut=cut)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["server-00000.json", "server-00000.safetensors"]


def test_parts_of_several_checkpoints_and_missing_parts_are_errors(tmp_path: Path) -> None:
    """Both were restored without a word: some rows were old, or gone."""
    write(tmp_path, 0, FIRST)
    publish_snapshot(tmp_path, server=0, cut=FIRST)
    with pytest.raises(CheckpointError, match="incomplete: it has the state of 1 of 2 parameter servers"):
        check_whole(tmp_path, documents(tmp_path))
    write(tmp_path, 1, SECOND)
    publish_snapshot(tmp_path, server=1, cut=SECOND)
    with pytest.raises(CheckpointError, match="from 2 checkpoints, and none of them is whole"):
        check_whole(tmp_path, documents(tmp_path))
    check_whole(tmp_path, [{}, {}])  # those of an older version


def test_a_name_that_leads_elsewhere_is_refused() -> None:
    with pytest.raises(InputError, match=r"hexadecimal digits, got '\.\./x'"):
        Cut("../x", 1)
