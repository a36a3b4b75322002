"""Fetching: whatever the network does, a file in the cache is the right one."""

from __future__ import annotations

import errno
import gzip
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trek.data.datasets import Dataset, find_dataset
from trek.data.fetching.fetch import fetch, is_fetched
from trek.errors import DataUnavailable, StorageError


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trek.data.fetching.download._FIRST_PAUSE_S", 0.001)


@pytest.fixture
def content(file_server: Any, small_dataset: Dataset) -> bytes:
    return file_server.files["/one/blob.bin"]


def fetch_blob(dataset: Dataset) -> Path:
    return fetch(dataset, show_progress=False)["blob.bin"]


def test_a_file_is_fetched_into_the_cache(small_dataset: Dataset, content: bytes, home: Path) -> None:
    path = fetch_blob(small_dataset)
    assert path == home / "data" / "small" / "blob.bin"
    assert path.read_bytes() == content
    assert is_fetched(small_dataset)


def test_a_cached_file_is_not_asked_for_again(small_dataset: Dataset, file_server: Any) -> None:
    fetch_blob(small_dataset)
    fetch_blob(small_dataset)
    assert len(file_server.requests) == 1


def test_a_cached_file_that_was_damaged_is_fetched_again(small_dataset: Dataset, content: bytes) -> None:
    path = fetch_blob(small_dataset)
    path.write_bytes(b"x" + content[1:])
    assert fetch_blob(small_dataset).read_bytes() == content


def test_a_broken_download_goes_on_where_it_stopped(small_dataset: Dataset, content: bytes, file_server: Any) -> None:
    file_server.truncate_to = [1000]
    assert fetch_blob(small_dataset).read_bytes() == content
    assert [wanted for _, wanted in file_server.requests] == [None, "bytes=1000-"]


def test_a_download_interrupted_in_an_earlier_run_goes_on(
    small_dataset: Dataset, content: bytes, file_server: Any, home: Path
) -> None:
    folder = home / "data" / "small"
    folder.mkdir(parents=True)
    (folder / "blob.bin.part").write_bytes(content[:5000])
    assert fetch_blob(small_dataset).read_bytes() == content
    assert file_server.requests == [("/one/blob.bin", "bytes=5000-")]


def test_a_server_without_ranges_is_read_from_the_beginning(
    small_dataset: Dataset, content: bytes, file_server: Any
) -> None:
    file_server.knows_ranges = False
    file_server.truncate_to = [1000]
    assert fetch_blob(small_dataset).read_bytes() == content


def test_a_file_truncated_every_time_is_an_error_and_never_counts_as_done(
    small_dataset: Dataset, file_server: Any, home: Path
) -> None:
    file_server.files = {"/one/blob.bin": b"short", "/two/blob.bin": b"short"}
    with pytest.raises(DataUnavailable, match="bytes"):
        fetch_blob(small_dataset)
    assert not (home / "data" / "small" / "blob.bin").exists()
    assert not is_fetched(small_dataset)


def test_wrong_bytes_are_refused_and_the_next_mirror_is_tried(
    small_dataset: Dataset, content: bytes, file_server: Any
) -> None:
    file_server.files["/one/blob.bin"] = b"y" * len(content)
    assert fetch_blob(small_dataset).read_bytes() == content
    assert file_server.requests[-1][0] == "/two/blob.bin"


def test_wrong_bytes_everywhere_are_an_error_that_names_the_checksum(
    small_dataset: Dataset, content: bytes, file_server: Any, home: Path
) -> None:
    file_server.files = dict.fromkeys(file_server.files, b"y" * len(content))
    with pytest.raises(DataUnavailable, match="sha256"):
        fetch_blob(small_dataset)
    assert not [p for p in (home / "data" / "small").iterdir() if not p.name.startswith(".")]


def test_a_beginning_from_elsewhere_is_thrown_away_when_it_does_not_fit(
    small_dataset: Dataset, content: bytes, home: Path
) -> None:
    folder = home / "data" / "small"
    folder.mkdir(parents=True)
    (folder / "blob.bin.part").write_bytes(b"other" * 100)
    assert fetch_blob(small_dataset).read_bytes() == content


def test_a_missing_file_moves_on_to_the_next_mirror(small_dataset: Dataset, file_server: Any) -> None:
    del file_server.files["/one/blob.bin"]
    fetch_blob(small_dataset)
    assert [path for path, _ in file_server.requests] == ["/one/blob.bin", "/two/blob.bin"]


def test_a_server_in_trouble_is_asked_again(small_dataset: Dataset, content: bytes, file_server: Any) -> None:
    file_server.status = [503, 500]
    assert fetch_blob(small_dataset).read_bytes() == content


def test_a_mirror_folder_comes_before_the_network(
    small_dataset: Dataset, content: bytes, file_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mirror" / "small").mkdir(parents=True)
    (tmp_path / "mirror" / "small" / "blob.bin").write_bytes(content)
    monkeypatch.setenv("TREK_DATA_MIRROR", str(tmp_path / "mirror"))
    fetch_blob(small_dataset)
    assert file_server.requests == []


def test_a_mirror_url_may_hold_the_file_compressed(
    small_dataset: Dataset, content: bytes, file_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    file_server.files = {"/mirror/small/blob.bin.gz": gzip.compress(content)}
    monkeypatch.setenv("TREK_DATA_MIRROR", f"{file_server.url}/mirror")
    assert fetch_blob(small_dataset).read_bytes() == content


def test_a_mirror_without_the_file_is_passed_over(
    small_dataset: Dataset, file_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TREK_DATA_MIRROR", str(tmp_path))
    fetch_blob(small_dataset)
    assert file_server.requests


def test_a_full_disk_is_a_storage_error(
    small_dataset: Dataset, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def no_space(source: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "blob.bin").write_bytes(b"")
    monkeypatch.setenv("TREK_DATA_MIRROR", str(tmp_path))
    monkeypatch.setattr(shutil, "copyfile", no_space)
    with pytest.raises(StorageError, match="no space left"):
        fetch_blob(small_dataset)


def test_a_home_that_is_a_file_is_a_storage_error(small_dataset: Dataset, home: Path) -> None:
    home.write_text("in the way")
    with pytest.raises(StorageError, match="cannot create the folder"):
        fetch_blob(small_dataset)


@pytest.mark.parametrize("name", ["blob.bin", "blob.bin.part", "blob.bin.gz.part", ".blob.bin.lock"])
@pytest.mark.usefixtures("content")
def test_a_folder_in_the_place_of_a_file_is_named(small_dataset: Dataset, home: Path, name: str) -> None:
    (home / "data" / "small" / name).mkdir(parents=True)
    with pytest.raises(StorageError) as caught:
        fetch_blob(small_dataset)
    place = home / "data" / "small" / name
    assert str(caught.value) == f"{place} is a folder where a file of data set 'small' must be. Remove it."


def test_a_file_in_the_place_of_the_folder_is_a_storage_error(small_dataset: Dataset, home: Path) -> None:
    (home / "data").mkdir(parents=True)
    (home / "data" / "small").write_text("")
    with pytest.raises(StorageError, match="cannot write to"):
        fetch_blob(small_dataset)


def test_processes_that_fetch_at_once_all_get_the_whole_set(shared_data: Path, home: Path) -> None:
    code = (
        "from trek.data.datasets import find_dataset; from trek.data.fetching.fetch import fetch\n"
        "print(sum(p.stat().st_size for p in fetch(find_dataset('mnist')).values()))"
    )
    environment = {**os.environ, "TREK_DATA_MIRROR": str(shared_data)}
    processes = [
        subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    outputs = [process.communicate(timeout=240)[0].strip() for process in processes]
    assert outputs == [str(find_dataset("mnist").size_bytes)] * 3
    assert not list((home / "data" / "mnist").glob("*.part"))
