"""Files that are put into a member's folder, whatever its owner has put there."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from trek.engines.member_folder import MemberFolder

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root writes into the folders of other users")


def test_a_file_replaces_a_link_and_not_what_the_link_names(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "precious").write_text("of somebody else")
    (tmp_path / "folder" / "word").symlink_to(tmp_path / "precious")
    MemberFolder(tmp_path / "folder").write("word", b"new")
    assert MemberFolder(tmp_path / "folder").read("word") == b"new"
    assert (tmp_path / "precious").read_text() == "of somebody else"


def test_what_cannot_be_replaced_is_an_error_and_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "word" / "in_the_way").mkdir(parents=True)
    with pytest.raises(OSError, match="directory"):
        MemberFolder(tmp_path).write("word", b"new")
    assert [one.name for one in tmp_path.iterdir()] == ["word"]


@needs_root
def test_a_file_belongs_to_the_owner_of_the_folder(tmp_path: Path) -> None:
    nobody = pwd.getpwnam("nobody")
    os.chown(tmp_path, nobody.pw_uid, nobody.pw_gid)
    MemberFolder(tmp_path).write("word", b"new")
    found = (tmp_path / "word").stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (nobody.pw_uid, nobody.pw_gid, 0o600)
