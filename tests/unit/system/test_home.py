"""The home belongs to its owner alone."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import pytest

from trek.errors import InputError
from trek.system.home import claim_home, close_to_others, trek_home


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_a_relative_home_is_the_same_after_a_change_of_folder_and_is_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The records of a run were lost to commands in another folder."""
    (tmp_path / "other").mkdir()
    monkeypatch.setenv("TREK_HOME", "own/home")
    monkeypatch.chdir(tmp_path)
    assert trek_home() == tmp_path / "own" / "home"
    monkeypatch.chdir(tmp_path / "other")
    assert trek_home() == tmp_path / "own" / "home"
    assert os.environ["TREK_HOME"] == str(tmp_path / "own" / "home")
    err = capsys.readouterr().err
    assert err.count("trek: warning: TREK_HOME 'own/home' is relative") == 1
    assert str(tmp_path / "own" / "home") in err


def test_a_home_below_the_users_is_absolute(capsys: pytest.CaptureFixture[str]) -> None:
    assert trek_home({"TREK_HOME": "~/x"}) == Path.home() / "x"
    assert capsys.readouterr().err == ""


def test_a_new_home_is_for_its_owner_whatever_the_umask_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A new home was 0755: other users read the database with its hashes and signing keys."""
    before = os.umask(0)
    try:
        assert mode(claim_home(tmp_path / "new" / "home")) == 0o700
    finally:
        os.umask(before)
    assert capsys.readouterr().err == ""


def test_a_home_open_to_others_is_closed_with_one_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An existing home stayed open to other users."""
    home = tmp_path / "home"
    (home / "trials").mkdir(parents=True)
    (home / "control.db").touch()
    (home / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").touch()
    for path in (home, home / "trials", home / "control.db", tmp_path / "elsewhere"):
        path.chmod(0o755)
    claim_home(home)
    assert "was open to other users (mode 755)" in capsys.readouterr().err
    claim_home(home)
    assert capsys.readouterr().err == ""
    assert [mode(path) for path in (home, home / "trials", home / "control.db")] == [0o700] * 3
    assert mode(tmp_path / "elsewhere") == 0o755, "what a link leads to is not the home's"


def test_a_folder_that_all_users_share_is_refused_and_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    monkeypatch.setattr(tempfile, "tempdir", str(shared))
    with pytest.raises(InputError, match="all users share"):
        claim_home(shared)
    assert mode(shared) == 0o1777


def test_closing_a_folder_leaves_the_owners_permissions(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "run.sh").touch()
    (tmp_path / "a" / "b" / "run.sh").chmod(0o755)
    close_to_others(tmp_path / "a")
    assert mode(tmp_path / "a" / "b") == 0o700
    assert mode(tmp_path / "a" / "b" / "run.sh") == 0o700
