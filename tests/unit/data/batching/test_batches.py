"""Batches by global row: nothing twice, nothing lost, whatever the world; resumable anywhere."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import trek
from trek.data import Table
from trek.data.execution import running_on
from trek.data.execution.threads import ThreadExecutor
from trek.errors import InputError
from trek.system.home import trek_home
from trek.world import World


def world(rank: int, size: int) -> World:
    return World(rank=rank, size=size, local_rank=rank, local_size=size)


def table(num_rows: int) -> Table:
    return Table.of({"x": np.arange(num_rows), "y": np.arange(num_rows) * 10})


def rows_of(batches: Any) -> list[list[int]]:
    return [share[0].tolist() for share in batches]


def flat(batches: Any) -> list[int]:
    return [row for rows in rows_of(batches) for row in rows]


@settings(deadline=None, max_examples=60)
@given(
    num_rows=st.integers(1, 60),
    batch_size=st.integers(1, 20),
    size=st.integers(1, 5),
    shuffle=st.booleans(),
    tail=st.sampled_from(["keep", "pad"]),
)
def test_ranks_together_see_every_row_once(num_rows: int, batch_size: int, size: int, shuffle: bool, tail: Any) -> None:
    source = table(num_rows)
    options = {"shuffle": shuffle, "seed": 3, "tail": tail}
    shares = [rows_of(source.batches(batch_size, world=world(r, size), **options)) for r in range(size)]
    assert len({len(share) for share in shares}) == 1
    seen = [row for share in shares for batch in share for row in batch]
    assert set(seen) == set(range(num_rows))
    if tail == "keep":
        assert len(seen) == num_rows


def test_every_rank_gets_its_own_part_of_the_data() -> None:
    """A loader that ignores rank and world has every rank train on the same quarter."""
    shares = [set(flat(table(100).batches(20, world=world(r, 4)))) for r in range(4)]
    assert set.union(*shares) == set(range(100))
    assert sum(len(share) for share in shares) == 100


@pytest.mark.parametrize("num_rows", [1, 3, 4, 5, 7, 10])
def test_the_true_tail_is_served_and_no_batch_comes_twice(num_rows: int) -> None:
    """A loader that reshapes rows into batches drops the tail, or serves a batch twice, or fails on few rows."""
    seen = flat(table(num_rows).batches(4))
    assert seen == list(range(num_rows))


def test_columns_come_in_the_order_asked_for() -> None:
    (first, second), *_ = table(4).batches(2, columns=["y", "x"])
    assert first.tolist() == [0, 10]
    assert second.tolist() == [0, 1]


def test_dropping_the_tail_leaves_full_batches() -> None:
    assert [len(rows) for rows in rows_of(table(10).batches(4, tail="drop"))] == [4, 4]


def test_a_shuffle_is_the_same_for_the_same_seed_and_epoch_and_no_other() -> None:
    def shuffled(**options: int) -> list[list[int]]:
        return rows_of(table(50).batches(8, shuffle=True, **options))

    assert shuffled(seed=1) == shuffled(seed=1)
    assert shuffled(seed=1) != shuffled(seed=2)
    assert shuffled(seed=1, epoch=0) != shuffled(seed=1, epoch=1)


def test_a_complete_pass_moves_on_to_the_next_epoch() -> None:
    batches = table(50).batches(8, shuffle=True, seed=1)
    first, second = rows_of(batches), rows_of(batches)
    assert second == rows_of(table(50).batches(8, shuffle=True, seed=1, epoch=1))
    assert first != second


@pytest.mark.parametrize("storage", ["parquet", "arrow"])
@pytest.mark.parametrize("tail", ["keep", "pad", "drop"])
def test_streaming_from_disk_gives_the_batches_of_memory(tail: Any, storage: Any, tmp_path: Path) -> None:
    kept = table(1003).partition(3).persist(tmp_path / "kept", storage=storage)
    for rank in range(2):
        options = {"tail": tail, "world": world(rank, 2)}
        assert rows_of(kept.batches(64, **options)) == rows_of(table(1003).batches(64, **options))


def test_shuffling_a_persisted_table_gives_the_batches_of_memory(tmp_path: Path) -> None:
    kept = table(101).partition(3).persist(tmp_path / "kept")
    options = {"shuffle": True, "seed": 5}
    assert rows_of(kept.batches(8, **options)) == rows_of(table(101).batches(8, **options))


@settings(deadline=None, max_examples=40)
@given(stop=st.integers(0, 8), shuffle=st.booleans(), old_size=st.integers(1, 4), new_size=st.integers(1, 4))
def test_resuming_continues_at_the_row_on_any_world(stop: int, shuffle: bool, old_size: int, new_size: int) -> None:
    def make(rank: int, size: int) -> Any:
        return table(60).batches(8, shuffle=shuffle, seed=2, epoch=4, world=world(rank, size))

    before = make(0, old_size)
    iterator = iter(before)
    for _ in range(stop):
        next(iterator)
    state = before.state_dict()
    assert (state["epoch"], state["row"]) == (4, stop * 8)
    for rank in range(new_size):
        resumed = make(rank, new_size)
        resumed.load_state_dict(state)
        assert rows_of(resumed) == rows_of(make(rank, new_size))[stop:]


def test_resuming_a_stream_continues_at_the_row(tmp_path: Path) -> None:
    kept = table(500).partition(2).persist(tmp_path / "kept")
    batches = kept.batches(64)
    batches.load_state_dict({"seed": 0, "epoch": 0, "row": 192, "num_rows": 500})
    assert rows_of(batches)[0][0] == 192


def test_a_loop_that_broke_off_begins_the_epoch_again() -> None:
    batches = table(20).batches(4)
    for _ in batches:
        break
    assert rows_of(batches)[0] == [0, 1, 2, 3]


def test_computed_rows_beyond_the_limit_of_memory_are_shuffled(tmp_path: Path) -> None:
    made = table(5000).partition(3).persist(tmp_path / "kept").map(lambda batch: batch)
    expected = rows_of(table(5000).batches(64, shuffle=True, seed=4))
    with running_on(ThreadExecutor(1, memory_limit_bytes=1000, spill_dir=tmp_path)) as executor:
        assert rows_of(made.batches(64, shuffle=True, seed=4)) == expected
        assert not executor.num_spilled_bytes, "they are written where all processes read them"


def decoded_folders() -> list[Path]:
    return [path for path in (trek_home() / "cache" / "decoded").glob("*") if path.is_dir()]


def test_a_large_encoded_table_is_decoded_once_and_shuffled_from_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    images = {"image": np.arange(20_000, dtype=np.uint16)[:, None].repeat(600, axis=1), "row": np.arange(20_000)}
    kept = Table.of(images).partition(3).persist(tmp_path / "kept")
    for epoch in (0, 1):
        found = kept.batches(512, shuffle=True, seed=5, epoch=epoch)
        expected = rows_of(table(20_000).batches(512, shuffle=True, seed=5, epoch=epoch))
        for (image, rows), wanted in zip(found, expected, strict=True):
            assert rows.tolist() == wanted
            assert torch.equal(image[:, 599].to(torch.int64), rows)
    assert len(decoded_folders()) == 1
    assert [message for message in caplog.messages if str(decoded_folders()[0]) in message] == caplog.messages[:1]
    assert "24 MB were decoded once for all processes" in caplog.text


def test_a_small_encoded_table_is_shuffled_without_a_file(tmp_path: Path) -> None:
    rows_of(table(1000).persist(tmp_path / "kept").batches(8, shuffle=True))
    assert not decoded_folders()


def test_decoded_rows_that_nobody_used_for_a_week_are_removed(tmp_path: Path) -> None:
    def shuffle_one(name: str) -> None:
        values = np.full((3000, 800), len(name), np.float64)
        rows_of(Table.of({"x": values}).persist(tmp_path / name).batches(512, shuffle=True))

    shuffle_one("a")
    (old,) = decoded_folders()
    os.utime(old / "manifest.json", times=(0, 0))
    shuffle_one("other")
    assert len(decoded_folders()) == 1
    assert not old.exists()


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("prefetch", [1, 5])
def test_prefetching_changes_no_batch(shuffle: bool, prefetch: int) -> None:
    options = {"shuffle": shuffle, "seed": 6}
    batches = table(101).batches(8, prefetch=prefetch, **options)
    assert rows_of(batches) == rows_of(table(101).batches(8, **options))
    assert batches.wait_s > 0


def test_breaking_off_ends_the_prefetching_thread() -> None:
    for _ in table(1000).batches(8, prefetch=2):
        break
    assert not [thread for thread in threading.enumerate() if thread.name == "trek-prefetch"]


def test_the_state_counts_batches_used_and_not_those_made_ahead() -> None:
    batches = table(100).batches(10, prefetch=5)
    iterator = iter(batches)
    next(iterator)
    assert batches.state_dict()["row"] == 10
    iterator.close()


def test_an_error_ahead_is_raised_where_the_batch_is_read() -> None:
    source = Table.of({"x": [1, None]})
    with pytest.raises(InputError, match="'x' has 1 missing"):
        list(source.batches(2, prefetch=2))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_torch_dataloader_serves_the_same_batches_in_order(num_workers: int) -> None:
    dataset = table(50).batches(8, shuffle=True, seed=3).as_dataset()
    loader = torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=num_workers)
    assert rows_of(loader) == rows_of(table(50).batches(8, shuffle=True, seed=3))


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("is_persistent", [False, True])
def test_every_pass_of_a_torch_dataloader_is_another_epoch(num_workers: int, is_persistent: bool) -> None:
    """With workers every pass had the order of the first, since only the workers knew that there had been one."""
    batches = table(50).batches(8, shuffle=True, seed=3)
    loader = torch.utils.data.DataLoader(
        batches.as_dataset(),
        batch_size=None,
        num_workers=num_workers,
        persistent_workers=is_persistent and num_workers > 0,
    )
    for epoch in range(3):
        assert rows_of(loader) == rows_of(table(50).batches(8, shuffle=True, seed=3, epoch=epoch))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_torch_dataloader_begins_where_the_batches_were_to_begin(num_workers: int) -> None:
    """With workers the position was ignored."""
    ours, theirs = table(50).batches(8, shuffle=True), table(50).batches(8, shuffle=True)
    loader = torch.utils.data.DataLoader(ours.as_dataset(), batch_size=None, num_workers=num_workers)
    for state in ({"epoch": 2, "row": 16}, {"epoch": 5, "row": 24}):
        for batches in (ours, theirs):
            batches.load_state_dict({"seed": 0, "num_rows": 50, **state})
        for _ in range(2):
            assert rows_of(loader) == rows_of(theirs)


def test_two_passes_at_the_same_time_are_two_epochs() -> None:
    loader = torch.utils.data.DataLoader(
        table(20).batches(4, shuffle=True).as_dataset(), batch_size=None, num_workers=1
    )
    pairs = list(zip(loader, loader, strict=True))
    found = sorted(rows_of([pair[side] for pair in pairs]) for side in (0, 1))
    assert found == sorted(rows_of(table(20).batches(4, shuffle=True, epoch=epoch)) for epoch in (0, 1))


def test_a_state_of_other_data_is_refused() -> None:
    with pytest.raises(InputError, match="does not fit"):
        table(20).batches(4).load_state_dict({"seed": 0, "epoch": 0, "row": 0, "num_rows": 21})
    with pytest.raises(InputError, match="taken with shuffle=True"):
        table(20).batches(4).load_state_dict(table(20).batches(4, shuffle=True).state_dict())
    with pytest.raises(InputError, match="epoch, num_rows, row missing"):
        table(20).batches(4).load_state_dict({"seed": 0})
    with pytest.raises(InputError, match="not the start of a batch of 4"):
        table(20).batches(4).load_state_dict({"seed": 0, "epoch": 0, "row": 6, "num_rows": 20})


def test_a_missing_number_is_refused_by_column() -> None:
    with pytest.raises(InputError, match="'x' has 1 missing"):
        list(Table.of({"x": [1, None]}).batches(2))


def test_images_arrive_as_tensors_of_their_type() -> None:
    source = Table.of({"image": np.zeros((5, 28, 28), np.uint8), "label": np.zeros(5, np.int64)})
    images, labels = next(iter(source.batches(3, shuffle=True)))
    assert (images.shape, images.dtype, labels.dtype) == ((3, 28, 28), torch.uint8, torch.int64)


def test_every_row_of_mnist_is_seen_once_by_four_ranks(
    tmp_path: Path, shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TREK_DATA_MIRROR", str(shared_data))
    mnist = trek.data.open("mnist").to_numpy()
    numbered = Table.of({**mnist, "row": np.arange(60000)}).partition(4).persist(tmp_path / "mnist")
    seen = []
    for rank in range(4):
        for images, _, rows in numbered.batches(128, shuffle=True, seed=1, world=world(rank, 4)):
            assert np.array_equal(images.numpy(), mnist["image"][rows.numpy()])
            seen.append(rows)
    assert torch.equal(torch.cat(seen).sort().values, torch.arange(60000))
