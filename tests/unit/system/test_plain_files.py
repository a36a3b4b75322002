"""Whatever lies where a file is expected: reading neither waits, nor follows a link, nor fills the memory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.foreign_files import KINDS, put
from trek.client.tar_stream import tar_stream
from trek.engines.lines import Tail
from trek.engines.log_file import read_lines
from trek.engines.member_folder import MemberFolder
from trek.engines.state_files import read_state
from trek.errors import CheckpointError, InputError
from trek.system.plain_files import NotPlainFile, open_plain, read_plain, remove_tree, write_plain
from trek.train.checkpointing.manifest import read_manifest, verify_files


@pytest.mark.parametrize("kind", KINDS)
def test_only_a_file_of_bounded_size_is_read(kind: str, tmp_path: Path) -> None:
    put(kind, tmp_path / "file")
    with pytest.raises(NotPlainFile):
        read_plain(tmp_path / "file", max_bytes=1000)
    if kind != "sparse":
        with pytest.raises(NotPlainFile, match="not a regular file"):
            open_plain(tmp_path / "file")


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"1234")
    assert read_plain(tmp_path / "file", max_bytes=4) == b"1234"
    with pytest.raises(NotPlainFile, match="more than 3 bytes"):
        read_plain(tmp_path / "file", max_bytes=3)
    with pytest.raises(FileNotFoundError):
        open_plain(tmp_path / "missing")


@pytest.mark.parametrize("kind", sorted({*KINDS} - {"folder"}))
def test_a_file_takes_the_place_of_whatever_was_there(kind: str, tmp_path: Path) -> None:
    put(kind, tmp_path / "file")
    write_plain(tmp_path / "file", b"new")
    assert read_plain(tmp_path / "file", max_bytes=10) == b"new"
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_a_folder_is_not_replaced_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    (tmp_path / "file").mkdir()
    with pytest.raises(IsADirectoryError):
        write_plain(tmp_path / "file", b"new")
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_reader_of_a_members_folder_is_through_with_it_at_once(kind: str, tmp_path: Path) -> None:
    for name in ("outcome.json", "rank_0.log", "manifest.json", "weights"):
        put(kind, tmp_path / name)
    assert MemberFolder(tmp_path).read("outcome.json") is None
    assert len(MemberFolder(tmp_path).read("outcome.json", size=10) or b"") <= 10
    log = tmp_path / "rank_0.log"
    assert kind == "sparse" or read_lines(log, 0, is_over=True) == read_lines(log, -10, is_over=True) == []
    tail = Tail(log)
    tail.skip()
    assert kind == "sparse" or tail.read() == b""
    with pytest.raises(InputError, match="cannot be read"):
        read_state(log)
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_manifest(tmp_path)
    manifest = {"files": {"weights": {"bytes": 1, "sha256": ""}}, "world_size": 0}
    with pytest.raises(CheckpointError, match="missing or has the wrong size"):
        verify_files(tmp_path, manifest, ["weights"])
    if kind != "sparse":
        assert b"".join(tar_stream(tmp_path)) == b"\0" * 1024


def test_a_tree_is_removed_however_deep_it_is_and_no_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.tex").write_text("years of work")
    tree = tmp_path / "tree"
    tree.mkdir()
    here = os.open(tree, os.O_RDONLY)
    for _ in range(1200):  # deeper than Python recurses, and than a path is long
        os.mkdir("inner", dir_fd=here)
        os.symlink(tmp_path / "precious", "link", dir_fd=here)
        inner = os.open("inner", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    os.mkfifo(tree / "pipe")
    remove_tree(tree)
    assert [one.name for one in tmp_path.iterdir()] == ["precious"]
    (tmp_path / "link").symlink_to(tmp_path / "precious")
    remove_tree(tmp_path / "link")
    remove_tree(tmp_path / "missing")
    assert [one.name for one in (tmp_path / "precious").iterdir()] == ["thesis.tex"]
