"""A table takes the place of another table, and of nothing else."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import fsspec
import pytest

import trek
from trek.data import Table
from trek.data.storing.persist import count_finished
from trek.data.storing.sharing import Handle
from trek.errors import InputError

_NEXT_VALUE = itertools.count()


def another_table() -> Table:
    """A table with a plan that no other call makes."""
    return Table.of({"x": [next(_NEXT_VALUE)]})


def folder_of_files(path: Path) -> None:
    path.mkdir()
    (path / "chapter.txt").write_text("years of work")


def plain_file(path: Path) -> None:
    path.write_text("years of work")


def table_with_a_note(path: Path) -> None:
    another_table().persist(path)
    (path / "NOTES.txt").write_text("years of work")


def table_with_a_folder(path: Path) -> None:
    another_table().persist(path)
    (path / "notes").mkdir()
    (path / "notes" / "chapter.txt").write_text("years of work")


def manifest_of_another_program(path: Path) -> None:
    path.mkdir()
    (path / "manifest.json").write_text('{"short_name": "my web page"}')


def shards_without_a_manifest(path: Path) -> None:
    path.mkdir()
    (path / "shard-00000.parquet").write_text("years of work")


def content(path: Path) -> dict[str, bytes]:
    files = [path] if path.is_file() else [entry for entry in path.rglob("*") if entry.is_file()]
    return {str(file): file.read_bytes() for file in files}


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize(
    "make",
    [
        folder_of_files,
        plain_file,
        table_with_a_note,
        table_with_a_folder,
        manifest_of_another_program,
        shards_without_a_manifest,
    ],
)
def test_what_is_not_only_a_table_is_not_overwritten(
    make: Callable[[Path], None], overwrite: bool, tmp_path: Path
) -> None:
    place = tmp_path / "place"
    make(place)
    before = content(place)

    def never(batch: object) -> object:
        raise AssertionError("nothing is computed for a place that is refused")

    with pytest.raises(InputError, match="so it is not overwritten") as refusal:
        another_table().map(never).persist(place, overwrite=overwrite)
    assert str(place) in str(refusal.value)
    assert content(place) == before


def test_the_error_names_the_files_that_are_in_the_way(tmp_path: Path) -> None:
    table_with_a_note(tmp_path / "kept")
    with pytest.raises(InputError, match=r"kept holds files that are not of a persisted table \(NOTES\.txt\)"):
        another_table().persist(tmp_path / "kept")


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_table_and_an_empty_folder_are_replaced(overwrite: bool, tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    for _ in range(2):
        table = another_table()
        table.persist(tmp_path / "kept", overwrite=overwrite)
        assert trek.data.open(tmp_path / "kept").to_arrow() == table.to_arrow()
    assert not list(tmp_path.glob(".kept.*.old"))


def test_a_file_that_appears_while_rows_are_computed_is_kept(tmp_path: Path) -> None:
    another_table().persist(tmp_path / "kept")

    def write_note(batch: object) -> object:
        (tmp_path / "kept" / "NOTES.txt").write_text("years of work")
        return batch

    with pytest.raises(InputError, match=r"NOTES\.txt"):
        another_table().map(write_note).persist(tmp_path / "kept")
    assert (tmp_path / "kept" / "NOTES.txt").read_text() == "years of work"


def test_the_folder_that_a_link_leads_to_is_replaced_and_the_link_stays(tmp_path: Path) -> None:
    (tmp_path / "kept").symlink_to(tmp_path / "large-disk")
    for _ in range(2):
        table = another_table()
        table.persist(tmp_path / "kept")
        assert trek.data.open(tmp_path / "large-disk").to_arrow() == table.to_arrow()
    assert (tmp_path / "kept").is_symlink()


def test_what_a_table_of_a_longer_name_is_written_to_is_left_alone(tmp_path: Path) -> None:
    others = tmp_path / ".kept.second.0123456789abcdef-parquet.tmp"
    others.mkdir()
    (others / "shard-00000.parquet.done").touch()
    assert count_finished(tmp_path / "kept") == 0
    another_table().persist(tmp_path / "kept")
    another_table().persist(tmp_path / "*")
    assert others.is_dir()


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("name", ["rows.parquet", "notes.txt", "deep/rows.arrow", "manifest.json"])
def test_files_of_others_behind_a_url_are_not_overwritten(name: str, overwrite: bool) -> None:
    files = fsspec.filesystem("memory")
    url = f"memory://bucket-{next(_NEXT_VALUE)}"
    files.pipe_file(f"{url}/{name}", b"years of work")
    with pytest.raises(InputError, match=f"{url} holds files that are not of a persisted table"):
        another_table().persist(url, overwrite=overwrite)
    assert files.find(url) == [f"{url.removeprefix('memory:/')}/{name}"]
    assert files.cat_file(f"{url}/{name}") == b"years of work"


def test_what_a_killed_upload_left_behind_a_url_is_replaced() -> None:
    files = fsspec.filesystem("memory")
    url = f"memory://bucket-{next(_NEXT_VALUE)}"
    files.pipe_file(f"{url}/0123abcd-shard-00000.parquet", b"half")
    table = another_table()
    table.persist(url)
    assert trek.data.open(url).to_arrow() == table.to_arrow()
    assert not files.exists(f"{url}/0123abcd-shard-00000.parquet")


def test_a_handle_from_any_text_removes_no_folder_but_that_of_a_shared_table(tmp_path: Path) -> None:
    folder_of_files(tmp_path / "thesis")
    Handle(tmp_path / "thesis" / "chapter.txt", num_rows=1, nbytes=1).close()
    assert (tmp_path / "thesis" / "chapter.txt").exists()
