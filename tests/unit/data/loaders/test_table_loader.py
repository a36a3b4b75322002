"""A Table that is not in memory trains like one that is: the same batches, on any world, from any start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import trek.data.batching.decoded
from trek.data import Table
from trek.data.loaders import Batch, DataLoader, Loader
from trek.data.loaders.table import TableLoader
from trek.data.loaders.tensors import TensorLoader
from trek.world import World

_COLUMNS = {"x": np.arange(101), "image": np.arange(101 * 6, dtype=np.float32).reshape(101, 2, 3)}


def world(rank: int, size: int) -> World:
    return World(rank=rank, size=size, local_rank=rank, local_size=size)


def spelt(batch: Batch) -> tuple[Any, ...]:
    return [column.tolist() for column in batch.data], batch.num_samples, batch.global_samples


@pytest.fixture(params=["parquet", "arrow"])
def large(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Table:
    """A table on disk, taken for a large one."""
    monkeypatch.setattr(trek.data.batching.decoded, "_SMALL_BYTES", 0)
    return Table.of(_COLUMNS).partition(3).persist(tmp_path / "kept", storage=request.param)


def bound(table: Table, rank: int, size: int, **options: Any) -> Loader:
    return DataLoader(table, 10, **options).bind(world(rank, size), seed=3)


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("tail", ["keep", "drop", "pad"])
def test_batches_are_those_of_memory_from_every_start(large: Table, shuffle: bool, tail: Any) -> None:
    for size in (1, 3):
        for rank in range(size):
            ours = bound(large, rank, size, shuffle=shuffle, tail=tail)
            theirs = bound(Table.of(_COLUMNS), rank, size, shuffle=shuffle, tail=tail)
            assert (type(ours), type(theirs)) == (TableLoader, TensorLoader)
            assert ours.num_batches == theirs.num_batches
            assert ours.records(1) == theirs.records(1)
            for start in (0, 2):
                found = [spelt(batch) for batch in ours.batches(1, start=start)]
                assert found == [spelt(batch) for batch in theirs.batches(1, start=start)]


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_rank_without_a_row_gets_a_stand_in_that_does_not_count(large: Table, shuffle: bool) -> None:
    loaders = [bound(large, rank, 4, shuffle=shuffle) for rank in range(4)]  # 101 rows: the last batch has 21
    counts = [[batch.num_samples for batch in loader.batches(0)] for loader in loaders]
    assert np.array(counts).sum() == 101
    table = large.filter(trek.col("x") < 41)
    last = [list(bound(table, rank, 4, shuffle=shuffle).batches(0))[-1] for rank in range(4)]
    assert [batch.num_samples for batch in last] == [1, 0, 0, 0]
    assert all(len(column) == 1 for batch in last for column in batch.data)


def test_a_batch_may_be_changed_in_place(large: Table) -> None:
    loader = bound(large, 0, 1)
    for batch in loader.batches(0):
        batch.data[0].zero_()
    assert torch.cat([batch.data[0] for batch in loader.batches(0)]).tolist() == list(range(101))


def test_a_small_encoded_table_is_batched_in_memory(tmp_path: Path) -> None:
    assert isinstance(bound(Table.of(_COLUMNS).persist(tmp_path / "kept"), 0, 1), TensorLoader)
