"""The home: its owner's alone, and free to be removed and used again."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

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


def test_a_newer_database_is_named_with_exit_code_2(shell: Shell) -> None:
    """A database of a newer release ended in "the control plane did not start: … Can't locate revision", code 3."""
    assert shell.run("experiment", "list").returncode == 0
    assert shell.run("cluster", "stop").returncode == 0
    with contextlib.closing(sqlite3.connect(shell.home / "control.db")) as database, database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
    for command in (("experiment", "list"), ("up", "--port", "0")):
        done = shell.run(*command)
        assert done.returncode == 2
        assert "written by a newer version of Trek" in done.stderr


def test_a_second_master_on_one_database_is_refused(shell: Shell, tmp_path: Path) -> None:
    """Two masters on one database restarted each other's trials."""
    url = f"sqlite:///{tmp_path / 'shared.db'}"
    first = shell.start("up", "--port", "0", "--db", url)
    try:
        assert first.stdout is not None
        assert "Trek master" in first.stdout.readline()
        other = Shell(tmp_path / "other-home", tmp_path, shell.model)
        second = other.run("up", "--port", "0", "--db", url)
        assert second.returncode == 2
        assert f"in use by another master: process {first.pid} on" in second.stderr
        first.kill()
        first.communicate()
        third = other.start("up", "--port", "0", "--db", url)
        assert third.stdout is not None
        assert "Trek master" in third.stdout.readline(), "the place of a killed one is taken at once"
        third.send_signal(signal.SIGINT)
        third.communicate(timeout=240)
    finally:
        first.kill()
        first.communicate()
        (shell.home / "control.json").unlink(missing_ok=True)


def test_a_control_plane_that_is_slow_to_answer_is_waited_for_and_not_doubled(shell: Shell) -> None:
    """On a busy machine a second one was started, which took over when the first one was stopped."""
    assert shell.run("experiment", "list").returncode == 0
    slow = shell.control_plane()
    slow.suspend()
    with shell.start("experiment", "list") as listing:
        with pytest.raises(subprocess.TimeoutExpired):
            listing.wait(timeout=7)
        slow.resume()
        assert listing.wait(timeout=120) == 0
    assert [one for one in shell.processes() if "trek.master.daemon" in one.cmdline()] == [slow]


def test_a_control_plane_that_was_started_beside_one_that_answers_is_ended(shell: Shell) -> None:
    shell.run("experiment", "list")
    first = shell.control_plane()
    start = f"embedded._start(Path({str(shell.home)!r}), engine=None)"
    program = f"from pathlib import Path; from trek.client import embedded; {start}"
    done = subprocess.run([sys.executable, "-c", program], env=shell.env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [one for one in shell.processes() if "trek.master.daemon" in one.cmdline()] == [first]
