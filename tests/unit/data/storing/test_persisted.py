"""Shards that are not the bytes that were written are refused by name, and never read as other numbers."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

import trek
from trek.data import Table, running_on
from trek.data.storing.table_folder import MANIFEST
from trek.errors import DataUnavailable

NUM_ROWS = 20_000


def rows() -> Table:
    texts = [f"v{number % 977}" for number in range(NUM_ROWS)]
    return Table.of({"x": np.arange(NUM_ROWS), "s": texts}, num_partitions=2)


def flipped(content: bytes, chance: random.Random) -> bytes:
    damaged = bytearray(content)
    damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
    return bytes(damaged)


@pytest.mark.parametrize("storage", ["parquet", "arrow"])
@pytest.mark.parametrize("name", ["shard", MANIFEST])
def test_a_flipped_bit_is_an_error_or_makes_no_difference(storage: Any, name: str, tmp_path: Path) -> None:
    whole = rows().persist(tmp_path / "kept", storage=storage).to_arrow()
    file = tmp_path / "kept" / (f"shard-00000.{storage}" if name == "shard" else name)
    content, chance, seen = file.read_bytes(), random.Random(1), Counter[str]()
    for _ in range(60):
        file.write_bytes(flipped(content, chance))
        try:
            found = trek.data.open(tmp_path / "kept").to_arrow()
        except DataUnavailable as error:
            seen["refused" if str(tmp_path / "kept") in str(error) else str(error)] += 1
        else:
            assert found.equals(whole)
            seen["same"] += 1
    assert seen.keys() <= {"refused", "same"}
    assert seen["refused"] == 60 or name == MANIFEST


@pytest.mark.parametrize("storage", ["parquet", "arrow"])
def test_every_way_of_reading_refuses_a_damaged_shard(storage: Any, tmp_path: Path) -> None:
    rows().select("x").persist(tmp_path / "kept", storage=storage)
    shard = tmp_path / "kept" / f"shard-00001.{storage}"
    shard.write_bytes(flipped(shard.read_bytes(), random.Random(2)))
    ways = {
        "iterate": list,
        "to_arrow": Table.to_arrow,
        "query": lambda table: table.sort("x").to_arrow(),
        "map": lambda table: table.map(lambda batch: batch).to_arrow(),
        "batches": lambda table: list(table.batches(100)),
        "shuffled": lambda table: list(table.batches(100, shuffle=True)),
        "loader": lambda table: list(trek.DataLoader(table, 100)),
        "narrowed": lambda table: table.map(lambda batch: batch).select("x").to_arrow(),
        "persist": lambda table: table.persist(tmp_path / "again"),
    }
    for way in ways.values():
        with pytest.raises(DataUnavailable, match=f"the checksum of {shard.name} is wrong"):
            way(trek.data.open(tmp_path / "kept"))
    with running_on("processes", num_workers=1), pytest.raises(DataUnavailable, match="checksum"):
        trek.data.open(tmp_path / "kept").map(lambda batch: batch).to_arrow()


def test_a_shard_is_compared_once_for_an_opened_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows().persist(tmp_path / "kept")
    compared = []
    digest = trek.data.storing.persisted.sha256_of
    monkeypatch.setattr(trek.data.storing.persisted, "sha256_of", lambda path: compared.append(path) or digest(path))
    table = trek.data.open(tmp_path / "kept")
    assert not compared
    for _ in range(3):
        assert len(list(table.batches(1000, columns=["x"]))) == NUM_ROWS // 1000
    assert len(compared) == 2


@pytest.mark.parametrize("storage", ["parquet", "arrow"])
def test_a_table_that_another_one_replaced_is_not_read_as_that(storage: Any, tmp_path: Path) -> None:
    rows().persist(tmp_path / "kept", storage=storage)
    read, unread = (trek.data.open(tmp_path / "kept") for _ in range(2))
    before = next(iter(read.select("x").batches(NUM_ROWS)))[0].sum()
    rows().filter(trek.col("x") < 10).persist(tmp_path / "kept", storage=storage)
    with pytest.raises(DataUnavailable, match="does not match its manifest"):
        unread.to_arrow()
    if storage == "arrow":  # mapped, and whole
        assert (len(read), read.to_arrow()["x"].to_numpy().sum()) == (NUM_ROWS, before)
    else:
        with pytest.raises(DataUnavailable, match="does not match its manifest"):
            read.to_arrow()


def test_a_damaged_page_behind_a_url_is_refused() -> None:
    memory = fsspec.filesystem("memory")
    Table.of({"x": np.arange(NUM_ROWS)}).persist("memory://damaged/kept")
    path = next(path for path in memory.find("/damaged/kept") if path.endswith(".parquet"))
    content = bytearray(memory.cat_file(path))
    content[len(content) // 2] ^= 1
    memory.pipe_file(path, bytes(content))
    with pytest.raises(DataUnavailable, match=r"shard-00000.parquet cannot be read"):
        trek.data.open("memory://damaged/kept").to_arrow()
    memory.rm("/damaged", recursive=True)
