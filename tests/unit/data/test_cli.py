"""`trek data`: fetch, list, show, describe."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from trek.cli.data import data
from trek.errors import InputError


def run(*arguments: str) -> Result:
    return CliRunner().invoke(data, arguments, catch_exceptions=False)


@pytest.fixture(autouse=True)
def _mirror(shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREK_DATA_MIRROR", str(shared_data))


def test_get_fetches_verified_files(home: Path) -> None:
    result = run("get", "mnist", "digits")
    assert "mnist: 4 files, 11.6 MB, verified" in result.output
    assert "digits: part of an installed package" in result.output
    assert (home / "data" / "mnist" / "train-images-idx3-ubyte.gz").stat().st_size == 9912422


def test_get_prints_paths_as_json(home: Path) -> None:
    (row,) = json.loads(run("get", "adult", "--json").output)
    assert row == {
        "name": "adult",
        "files": {n: str(home / "data" / "adult" / n) for n in ("adult.data", "adult.test")},
    }


def test_get_of_an_unknown_name_fetches_nothing(home: Path) -> None:
    with pytest.raises(InputError, match="'mnits' does not exist"):
        run("get", "mnist", "mnits")
    assert not (home / "data").exists()


def test_list_tells_what_is_here() -> None:
    run("get", "criteo")
    rows = {row["name"]: row for row in json.loads(run("list", "--json").output)}
    assert rows["criteo"]["is_fetched"]
    assert not rows["mnist"]["is_fetched"]
    assert "11.6 MB to fetch" in next(line for line in run("list").output.splitlines() if line.startswith("mnist"))


def test_show_prints_rows_of_a_split() -> None:
    rows = json.loads(run("show", "sst2", "--split", "dev", "--rows", "2", "--json").output)
    assert [row["label"] for row in rows] == [1, 0]
    assert "sentence" in run("show", "sst2", "--split", "dev").output


def test_show_prints_tensors_as_nested_lists() -> None:
    (row,) = json.loads(run("show", "digits", "--rows", "1", "--json").output)
    assert (len(row["image"]), len(row["image"][0])) == (8, 8)


def test_describe_prints_figures() -> None:
    rows = {row["column"]: row for row in json.loads(run("describe", "digits", "--json").output)}
    assert (rows["image"]["min"], rows["image"]["max"]) == (0, 16)
    assert "uint8[8, 8]" in run("describe", "digits").output


def test_show_reads_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("name,n\nx,1\n")
    assert run("show", str(tmp_path / "a.csv")).output.split() == ["name", "n", "x", "1"]
