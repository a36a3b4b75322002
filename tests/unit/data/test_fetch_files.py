"""`trek.data.fetch_files`: verified files in a folder of the caller's."""

from __future__ import annotations

from pathlib import Path

import pytest

import trek


def test_files_are_copied_and_a_truncated_one_is_replaced(
    tmp_path: Path, shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TREK_DATA_MIRROR", str(shared_data))
    target = tmp_path / "a" / "b"
    paths = trek.data.fetch_files("mnist", split="test", folder=target)
    assert sorted(paths) == ["t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"]
    labels = target / "t10k-labels-idx1-ubyte.gz"
    whole = labels.read_bytes()
    labels.write_bytes(whole[:100])
    trek.data.fetch_files("mnist", split="test", folder=target)
    assert labels.read_bytes() == whole
    assert sorted(one.name for one in target.iterdir()) == sorted(paths)
