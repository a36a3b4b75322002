"""A thread of root with the rights of another user: what it may touch, and that nothing else has changed."""

from __future__ import annotations

import os
import pwd
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from trek.control.file_rights import rights_of
from trek.engines import OsUser

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to give up")


@pytest.fixture
def nobody() -> OsUser:
    found = pwd.getpwnam("nobody")
    return OsUser("nobody", found.pw_uid, found.pw_gid, (found.pw_gid, 12345))


@pytest.fixture
def private(tmp_path: Path) -> Iterator[Path]:
    """A folder that only root can enter."""
    folder = tmp_path / "private"
    folder.mkdir(mode=0o700)
    (folder / "file").write_text("of root")
    yield folder
    assert [one.name for one in folder.iterdir()] == ["file"]
    assert (folder / "file").read_text() == "of root"


def test_what_the_user_may_not_the_thread_may_not(nobody: OsUser, private: Path) -> None:
    with rights_of(nobody):
        for refused in (
            lambda: (private / "file").read_text(),
            lambda: (private / "new").touch(),
            lambda: (private / "file").unlink(),
            lambda: (private / "file").rename(private / "other"),
            lambda: (private / "file").chmod(0o777),
            lambda: list(private.iterdir()),
            lambda: os.chown(private, nobody.uid, nobody.gid),
        ):
            with pytest.raises(PermissionError):
                refused()
    assert (private / "file").read_text() == "of root"


def test_what_is_made_belongs_to_the_user_and_its_groups_count(nobody: OsUser, tmp_path: Path) -> None:
    above = Path(tempfile.gettempdir())
    for folder in (tmp_path, *(one for one in tmp_path.parents if one.is_relative_to(above) and one != above)):
        folder.chmod(0o711)
    (tmp_path / "own").mkdir()
    os.chown(tmp_path / "own", 0, 12345)
    (tmp_path / "own").chmod(0o770)
    groups = os.getgroups()
    with rights_of(nobody):
        (tmp_path / "own" / "file").touch()
    found = (tmp_path / "own" / "file").stat()
    assert (found.st_uid, found.st_gid) == (nobody.uid, nobody.gid)
    assert os.getgroups() == groups


def test_rights_end_with_their_block_and_are_those_of_one_thread(nobody: OsUser, private: Path) -> None:
    seen: list[str] = []
    is_inside, may_leave = threading.Event(), threading.Event()

    def work() -> None:
        with rights_of(nobody), rights_of(nobody):
            is_inside.set()
            may_leave.wait()
        seen.append((private / "file").read_text())

    thread = threading.Thread(target=work)
    thread.start()
    is_inside.wait()
    assert (private / "file").read_text() == "of root", "another thread has its own"
    may_leave.set()
    thread.join()
    assert seen == ["of root"]
    with rights_of(nobody):
        with rights_of(nobody):
            pass
        with pytest.raises(PermissionError):
            (private / "file").read_text()
    with pytest.raises(ZeroDivisionError), rights_of(nobody):
        1 / 0  # noqa: B018 - an error in the block
    assert (private / "file").read_text() == "of root"


def test_no_user_changes_nothing(private: Path) -> None:
    with rights_of(None):
        assert (private / "file").read_text() == "of root"
