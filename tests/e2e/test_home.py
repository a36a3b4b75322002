"""The home: its owner's alone, and free to be removed and used again."""

from __future__ import annotations

import os
import shutil
import stat

import pytest

from trek.testing.shell import Shell, wait_until


def test_nothing_in_the_home_is_accessible_to_other_users(shell: Shell) -> None:
    """The home was 0755 and control.db 0644: another user read hashes, secrets and the signing key of tokens."""
    shell.home.mkdir(mode=0o755)
    before = os.umask(0o022)
    try:
        done = shell.create()
    finally:
        os.umask(before)
    assert done.returncode == 0, done.stderr
    assert "was open to other users" in done.stderr
    assert (shell.home / "control.db-wal").exists()
    paths = [shell.home, *shell.home.rglob("*")]
    assert [str(path) for path in paths if not path.is_socket() and _is_open(path)] == []


def _is_open(path: os.PathLike[str]) -> bool:
    mode = os.lstat(path).st_mode
    return bool(mode & 0o077) and not stat.S_ISLNK(mode)


@pytest.mark.timeout(120)
def test_a_home_that_was_removed_can_be_used_again_at_once(shell: Shell) -> None:
    """The old control plane, ending, removed the address file of the new one, which nobody could reach then."""
    assert shell.run("experiment", "list").returncode == 0
    old = shell.control_plane()
    shutil.rmtree(shell.home)
    assert shell.run("experiment", "list").returncode == 0
    new = shell.control_plane()
    assert new.pid != old.pid
    wait_until(lambda: not old.is_running() or old.status() == "zombie")
    assert shell.control_plane() == new
    assert shell.json("experiment", "list") == []
    assert shell.control_plane() == new
