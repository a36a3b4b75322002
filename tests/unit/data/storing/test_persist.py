"""Persisted tables are whole or not there, and never stale."""

from __future__ import annotations

import errno
import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trek
from trek.data import Table
from trek.errors import DataUnavailable, InputError, StorageError, TrainingError


def images(num_rows: int = 20) -> Table:
    return Table.of({"image": np.arange(num_rows * 4, dtype=np.uint8).reshape(-1, 2, 2), "label": np.arange(num_rows)})


@pytest.mark.parametrize("storage", ["parquet", "arrow"])
def test_rows_columns_and_partitions_come_back(storage: Any, tmp_path: Path) -> None:
    kept = images().partition(3).persist(tmp_path / "kept", storage=storage)
    again = trek.data.open(tmp_path / "kept")
    assert (again.num_partitions, again.num_rows) == (3, 20)
    assert again.schema.equals(images().schema)
    assert again.schema.equals(again.to_arrow().schema)
    np.testing.assert_array_equal(again.to_numpy()["image"], images().to_numpy()["image"])
    assert kept.to_numpy()["label"].tolist() == list(range(20))


def test_the_manifest_says_what_is_there(tmp_path: Path) -> None:
    images().partition(2).persist(tmp_path / "kept")
    manifest = json.loads((tmp_path / "kept" / "manifest.json").read_text())
    assert [shard["rows"] for shard in manifest["shards"]] == [10, 10]
    assert set(manifest["schema"]) == {"image", "label"}
    assert all(len(shard["sha256"]) == 64 for shard in manifest["shards"])


def test_tensors_are_narrow_on_disk_and_compressed(tmp_path: Path) -> None:
    images().persist(tmp_path / "kept")
    file = pq.ParquetFile(tmp_path / "kept" / "shard-00000.parquet")
    assert file.schema_arrow.field("image").type == pa.binary(4)
    assert file.metadata.row_group(0).column(0).compression == "LZ4"


def test_an_equal_plan_is_not_computed_again(tmp_path: Path) -> None:
    log = tmp_path / "log"

    def noted(batch: Any) -> Any:
        with log.open("a") as file:
            file.write("x")
        return batch

    for _ in range(2):
        images().map(noted).persist(tmp_path / "kept")
    assert log.read_text() == "x"


def test_a_changed_input_is_noticed(tmp_path: Path) -> None:
    images(20).persist(tmp_path / "kept")
    assert images(30).persist(tmp_path / "kept").num_rows == 30
    assert trek.data.open(tmp_path / "kept").num_rows == 30


def test_a_changed_input_file_is_noticed(tmp_path: Path) -> None:
    source = tmp_path / "in.csv"
    source.write_text("a\n1\n2\n")
    trek.data.open(source).persist(tmp_path / "kept")
    source.write_text("a\n1\n2\n3\n")
    assert trek.data.open(source).persist(tmp_path / "kept").to_numpy()["a"].tolist() == [1, 2, 3]


def test_a_changed_function_is_noticed(tmp_path: Path) -> None:
    images().map(lambda batch: {"y": batch["label"] * 2}).persist(tmp_path / "kept")
    changed = images().map(lambda batch: {"y": batch["label"] * 3}).persist(tmp_path / "kept")
    assert changed.to_numpy()["y"][1] == 3


def test_a_damaged_shard_is_computed_again(tmp_path: Path) -> None:
    images().persist(tmp_path / "kept")
    shard = tmp_path / "kept" / "shard-00000.parquet"
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    np.testing.assert_array_equal(images().persist(tmp_path / "kept").to_numpy()["image"], images().to_numpy()["image"])


def test_a_truncated_shard_is_refused_on_opening(tmp_path: Path) -> None:
    images().persist(tmp_path / "kept")
    shard = tmp_path / "kept" / "shard-00000.parquet"
    shard.write_bytes(shard.read_bytes()[:-10])
    with pytest.raises(DataUnavailable, match=r"shard-00000\.parquet has"):
        trek.data.open(tmp_path / "kept")


def test_a_missing_shard_is_refused_on_opening(tmp_path: Path) -> None:
    images().persist(tmp_path / "kept")
    (tmp_path / "kept" / "shard-00000.parquet").unlink()
    with pytest.raises(DataUnavailable, match="is missing"):
        trek.data.open(tmp_path / "kept")


def test_a_failure_on_the_way_leaves_nothing_behind_and_the_old_result_in_place(tmp_path: Path) -> None:
    def broken(batch: Any) -> Any:
        raise ValueError("no")

    images().persist(tmp_path / "kept")
    with pytest.raises(TrainingError):
        images().map(broken).persist(tmp_path / "kept")
    assert [p.name for p in tmp_path.iterdir() if p.suffix != ".lock" and p.name != "trek-home"] == ["kept"]
    assert trek.data.open(tmp_path / "kept").num_rows == 20


def test_a_folder_half_written_under_its_temporary_name_is_not_read(tmp_path: Path) -> None:
    (tmp_path / ".kept.0badcafe.tmp").mkdir()
    (tmp_path / ".kept.0badcafe.tmp" / "shard-00000.parquet").write_bytes(b"half")
    assert images().persist(tmp_path / "kept").num_rows == 20


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", no_space)
    with pytest.raises(StorageError, match="no space left"):
        images().persist(tmp_path / "kept")
    assert not (tmp_path / "kept").exists()
    assert not list(tmp_path.glob(".kept.*.tmp"))


def test_somebody_elses_folder_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("years of work")
    with pytest.raises(InputError, match="not overwritten"):
        images().persist(tmp_path / "thesis")
    assert (tmp_path / "thesis" / "chapter.txt").read_text() == "years of work"


def test_an_empty_partition_has_its_shard(tmp_path: Path) -> None:
    table = Table.of({"x": np.arange(10)}, num_partitions=2).filter(trek.col("x") < 3)
    kept = table.persist(tmp_path / "kept")
    assert kept.num_partitions == 2
    assert kept.to_numpy()["x"].tolist() == [0, 1, 2]


def test_partitions_that_differ_in_type_are_refused(tmp_path: Path) -> None:
    def wobbling(batches: Any, context: Any) -> Any:
        return {"y": np.zeros(1, np.int64 if context.index == 0 else np.float32)}

    with pytest.raises(InputError, match="partitions differ in their columns"):
        images().partition(2).compute(wobbling).persist(tmp_path / "kept")


def test_writing_to_what_was_mapped_does_not_reach_the_file(tmp_path: Path) -> None:
    kept = images().persist(tmp_path / "kept", storage="arrow")
    kept.to_torch()["label"].zero_()
    assert trek.data.open(tmp_path / "kept").to_numpy()["label"].tolist() == list(range(20))


def test_a_changed_file_that_a_function_holds_the_path_of_is_noticed(tmp_path: Path) -> None:
    """It counted by its path alone, so that the old numbers were served."""
    scale = tmp_path / "scale.npy"

    def scaled(batch: Any) -> Any:
        return {"label": batch["label"] * np.load(scale)}

    np.save(scale, 2)
    assert images().map(scaled).persist(tmp_path / "kept").to_numpy()["label"][1] == 2
    np.save(scale, 3)
    assert images().map(scaled).persist(tmp_path / "kept").to_numpy()["label"][1] == 3


def test_what_cannot_be_fingerprinted_is_named_and_computed_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An object counted by its printed form, so that the result of another was served."""
    lock = threading.Lock()

    def guarded(batch: Any) -> Any:
        with lock, (tmp_path / "log").open("a") as file:
            file.write("x")
        return batch

    for _ in range(2):
        images().map(guarded).persist(tmp_path / "kept")
    assert (tmp_path / "log").read_text() == "xx"
    assert "guarded.lock (_thread.lock) cannot be fingerprinted" in caplog.text


def test_a_folder_in_which_no_file_can_be_created_is_said_to_be_so() -> None:
    """Waiting for a lock that cannot be created never ended."""
    with pytest.raises(StorageError, match="cannot write to /proc"):
        images().persist("/proc/kept")


def test_side_inputs_count_by_their_names() -> None:
    """Two side inputs whose names were exchanged made an equal plan."""

    def first(batches: Any, context: Any) -> Any:
        yield from ({"label": context.inputs["a"]["label"][:2]} for _ in batches)

    one, other = images(2), images(3)
    assert one.compute(first, a=one, b=other).fingerprint() != one.compute(first, b=one, a=other).fingerprint()
