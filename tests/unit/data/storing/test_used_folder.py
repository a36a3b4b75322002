"""A folder is filled once, and is there while a process uses it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trek.data.storing.used_folder import UsedFolder

_USER = """
import sys
from pathlib import Path
from trek.data.storing.used_folder import UsedFolder

def fill(path):
    print("filled", flush=True)
    (path / "rows").write_text("1")

use = UsedFolder.enter(Path(sys.argv[1]), fill)
print((use.path / "rows").read_text(), flush=True)
sys.stdin.read()
"""


def fill(path: Path) -> None:
    (path / "rows").write_text("1")


def refuse(path: Path) -> None:
    raise AssertionError("filled a second time")


def test_the_second_use_reads_what_the_first_one_filled(tmp_path: Path) -> None:
    first = UsedFolder.enter(tmp_path / "kept", fill)
    second = UsedFolder.enter(tmp_path / "kept", refuse)
    first.close()
    assert (second.path / "rows").exists()
    second.close()
    assert not list(tmp_path.iterdir())


def test_what_could_not_be_filled_is_filled_by_the_next(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        UsedFolder.enter(tmp_path / "kept", refuse)
    assert not list(tmp_path.iterdir())
    UsedFolder.enter(tmp_path / "kept", fill).close()


def test_a_forked_child_removes_nothing(tmp_path: Path) -> None:
    use = UsedFolder.enter(tmp_path / "kept", fill)
    child = os.fork()
    if not child:
        use.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert (use.path / "rows").exists()
    use.close()


def test_processes_share_a_folder_and_what_a_killed_one_left_is_removed(tmp_path: Path) -> None:
    users = [
        subprocess.Popen(
            [sys.executable, "-c", _USER, str(tmp_path / "kept")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for _ in range(2)
    ]  # fmt: skip
    said = []
    for user in users:
        assert user.stdout is not None
        line = user.stdout.readline().strip()
        said.append(line)
        if line == "filled":
            said.append(user.stdout.readline().strip())
    assert sorted(said) == ["1", "1", "filled"]
    for user in users:
        user.kill()
        user.communicate()
    assert (tmp_path / "kept").exists()
    UsedFolder.enter(tmp_path / "other", fill).close()
    assert not list(tmp_path.iterdir())
