"""A file of this process, and one that took its place."""

from __future__ import annotations

from pathlib import Path

from trek.master.own_file import OwnFile


def test_a_file_that_took_its_place_is_left_alone(tmp_path: Path) -> None:
    """A control plane that ended removed the address file of the next one in a home that was made again."""
    path = tmp_path / "control.json"
    path.write_text("old")
    with path.open():
        own = OwnFile.of(path)
        assert own.is_there
        path.unlink()
        assert not own.is_there
        path.write_text("new")
        own.remove()
    assert path.read_text() == "new"


def test_the_own_file_is_removed_where_it_was_moved_to(tmp_path: Path) -> None:
    (tmp_path / "partial").touch()
    own = OwnFile.of(tmp_path / "partial").renamed(tmp_path / "final")
    assert own.is_there
    own.remove()
    assert list(tmp_path.iterdir()) == []
