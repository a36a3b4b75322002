"""Whatever holds the data: every row once, on one rank, in the same number of batches, resumable at any of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import (
    BatchSampler,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    TensorDataset,
    WeightedRandomSampler,
)
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data.distributed import DistributedSampler

import trek
from trek.data import Table
from trek.data.batching.order import Order
from trek.data.loaders import Batch, DataLoader, Loader, as_loader
from trek.errors import InputError
from trek.world import World


class Numbers(Dataset[torch.Tensor]):
    """Row i is the number i."""

    def __init__(self, num_rows: int) -> None:
        self.num_rows = num_rows

    def __len__(self) -> int:
        return self.num_rows

    def __getitem__(self, row: int) -> torch.Tensor:
        return torch.tensor(row)


class Backwards(Sampler[int]):
    """A sampler of the user's own, without any randomness."""

    def __init__(self, num_rows: int) -> None:
        self.num_rows = num_rows

    def __len__(self) -> int:
        return self.num_rows

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.num_rows - 1, -1, -1))


@dataclass(frozen=True)
class Case:
    """Some data and a world to share it out in."""

    rows: int
    batch_size: int
    world_size: int
    epoch: int
    seed: int


cases = st.builds(
    Case,
    rows=st.integers(1, 40),
    batch_size=st.integers(1, 7),
    world_size=st.integers(1, 4),
    epoch=st.integers(0, 3),
    seed=st.integers(0, 5),
)
KINDS = {
    "tensors": lambda c: DataLoader((torch.arange(c.rows),), c.batch_size),
    "shuffled tensors": lambda c: DataLoader((torch.arange(c.rows),), c.batch_size, shuffle=True),
    "mapped": lambda c: DataLoader(Numbers(c.rows), c.batch_size, shuffle=True),
    "own sampler": lambda c: DataLoader(Numbers(c.rows), c.batch_size, sampler=Backwards(c.rows)),
    "batch sampler": lambda c: DataLoader(
        Numbers(c.rows), batch_sampler=BatchSampler(RandomSampler(Numbers(c.rows)), c.batch_size, drop_last=False)
    ),
    "torch, in order": lambda c: TorchDataLoader(Numbers(c.rows), c.batch_size),
    "torch, shuffled": lambda c: TorchDataLoader(Numbers(c.rows), c.batch_size, shuffle=True),
    "torch, of tensors": lambda c: TorchDataLoader(TensorDataset(torch.arange(c.rows)), c.batch_size, shuffle=True),
    "torch, own generator": lambda c: TorchDataLoader(
        Numbers(c.rows), c.batch_size, sampler=RandomSampler(Numbers(c.rows), generator=torch.Generator())
    ),
    "torch, distributed": lambda c: TorchDataLoader(
        Numbers(c.rows), c.batch_size, sampler=DistributedSampler(Numbers(c.rows), num_replicas=3, rank=1)
    ),
    "torch, batch sampler": lambda c: TorchDataLoader(
        Numbers(c.rows), batch_sampler=BatchSampler(SequentialSampler(Numbers(c.rows)), c.batch_size, drop_last=False)
    ),
    "stream": lambda c: list(torch.arange(c.rows).split(c.batch_size)),
}


def bind(source: Any, case: Case) -> list[Loader]:
    """The Loader of every rank, each from the same source, as processes have it."""
    worlds = [World(rank=r, size=case.world_size, local_size=case.world_size) for r in range(case.world_size)]
    return [as_loader(source, world=world, seed=case.seed) for world in worlds]


def rows_of(batch: Batch) -> list[int]:
    """The rows of a batch that count."""
    data = batch.data[0] if isinstance(batch.data, list) else batch.data
    rows: list[int] = data.tolist()
    return rows if batch.num_samples else []


@settings(max_examples=120, deadline=None)
@given(case=cases, kind=st.sampled_from(sorted(KINDS)))
def test_every_row_comes_once_on_one_rank(case: Case, kind: str) -> None:
    loaders = bind(KINDS[kind](case), case)
    seen = [row for loader in loaders for batch in loader.batches(case.epoch) for row in rows_of(batch)]
    assert sorted(seen) == list(range(case.rows))


@settings(max_examples=120, deadline=None)
@given(case=cases, kind=st.sampled_from(sorted(set(KINDS) - {"stream"})))
def test_all_ranks_have_the_same_number_of_batches_and_know_their_global_size(case: Case, kind: str) -> None:
    loaders = bind(KINDS[kind](case), case)
    by_rank = [list(loader.batches(case.epoch)) for loader in loaders]
    assert {len(batches) for batches in by_rank} == {loaders[0].num_batches}
    records = loaders[0].records(case.epoch)
    assert records is not None
    for index, parts in enumerate(zip(*by_rank, strict=True)):
        assert sum(part.num_samples for part in parts) == records[index]
        assert {part.global_samples for part in parts} == {records[index]}
        assert all(len(part.data[0] if isinstance(part.data, list) else part.data) >= 1 for part in parts)


@settings(max_examples=120, deadline=None)
@given(case=cases, kind=st.sampled_from(sorted(KINDS)), start=st.integers(0, 45))
def test_reading_from_a_batch_on_gives_what_a_whole_reading_gives_from_there(case: Case, kind: str, start: int) -> None:
    for loader in bind(KINDS[kind](case), case):
        whole = [rows_of(batch) for batch in loader.batches(case.epoch)]
        list(loader.batches(case.epoch + 1))  # whatever was read in between
        arrived: list[int] = []
        rest = [rows_of(b) for b in loader.batches(case.epoch, start=start, at_start=partial(arrived.append, 1))]
        assert rest == whole[start:]
        assert arrived == [1]


@settings(max_examples=80, deadline=None)
@given(case=cases, kind=st.sampled_from(["shuffled tensors", "mapped", "torch, distributed"]))
def test_rows_are_those_of_torchs_distributed_sampler(case: Case, kind: str) -> None:
    """Where the rows divide evenly: elsewhere torch repeats rows, and Trek does not."""
    even = Case(case.rows * case.world_size, case.batch_size, case.world_size, case.epoch, case.seed)
    for rank, loader in enumerate(bind(KINDS[kind](even), even)):
        sampler = DistributedSampler(Numbers(even.rows), num_replicas=even.world_size, rank=rank, seed=even.seed)
        sampler.set_epoch(even.epoch)
        assert [row for batch in loader.batches(even.epoch) for row in rows_of(batch)] == list(sampler)


@settings(max_examples=60, deadline=None)
@given(case=cases, kind=st.sampled_from(["tensors", "mapped", "sampler"]), shuffle=st.booleans())
def test_a_padded_tail_is_full_on_every_rank_and_repeats_the_first_rows(case: Case, kind: str, shuffle: bool) -> None:
    data: Any = (torch.arange(case.rows),) if kind == "tensors" else Numbers(case.rows)
    order: dict[str, Any] = {"sampler": Backwards(case.rows)} if kind == "sampler" else {"shuffle": shuffle}
    by_rank = [list(x.batches(0)) for x in bind(DataLoader(data, case.batch_size, tail="pad", **order), case)]
    assert {batch.num_samples for batches in by_rank for batch in batches} == {case.batch_size}
    seen = Counter(row for batches in by_rank for batch in batches for row in rows_of(batch))
    assert sorted(seen) == list(range(case.rows))
    assert max(seen.values()) - min(seen.values()) <= 1


@settings(max_examples=60, deadline=None)
@given(case=cases, kind=st.sampled_from(["tensors", "mapped"]), shuffle=st.booleans())
def test_a_dropped_tail_leaves_only_full_batches(case: Case, kind: str, shuffle: bool) -> None:
    data: Any = (torch.arange(case.rows),) if kind == "tensors" else Numbers(case.rows)
    loader = DataLoader(data, case.batch_size, shuffle=shuffle, drop_last=True)
    if case.rows < case.batch_size * case.world_size:
        with pytest.raises(InputError, match="leaves nothing"):
            bind(loader, case)
        return
    seen = [row for one in bind(loader, case) for batch in one.batches(case.epoch) for row in rows_of(batch)]
    full = case.batch_size * case.world_size
    assert len(set(seen)) == len(seen) == case.rows // full * full


def test_a_rank_without_a_row_gets_a_stand_in_that_counts_nothing() -> None:
    loaders = bind(DataLoader((torch.arange(5),), 2), Case(rows=5, batch_size=2, world_size=2, epoch=0, seed=0))
    last = [list(loader.batches(0))[-1] for loader in loaders]
    assert [(b.num_samples, b.global_samples, b.data[0].tolist()) for b in last] == [(1, 1, [4]), (0, 1, [4])]


@pytest.mark.parametrize("kind", ["sampler", "batch_sampler"])
def test_a_weighted_sampler_draws_the_same_rows_for_every_rank_and_others_every_epoch(kind: str) -> None:
    def source() -> DataLoader:
        sampler = WeightedRandomSampler([1.0] * 10 + [0.0] * 10, 12, generator=torch.Generator().manual_seed(9))
        if kind == "sampler":
            return DataLoader(Numbers(20), 3, sampler=sampler)
        return DataLoader(Numbers(20), batch_sampler=BatchSampler(sampler, 3, drop_last=False))

    case = Case(rows=20, batch_size=3, world_size=2, epoch=0, seed=0)
    one = as_loader(source(), world=World(), seed=0)
    drawn = sorted(row for batch in one.batches(1) for row in rows_of(batch))
    shared = sorted(row for loader in bind(source(), case) for batch in loader.batches(1) for row in rows_of(batch))
    assert drawn == shared
    assert max(drawn) < 10
    assert drawn != sorted(row for batch in one.batches(2) for row in rows_of(batch))


def test_drawing_an_order_leaves_the_global_generators_alone() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    sampler = WeightedRandomSampler([1.0] * 20, 12)
    list(as_loader(DataLoader(Numbers(20), 3, sampler=sampler), world=World(), seed=0).batches(0))
    assert torch.equal(before, torch.get_rng_state())


def test_a_distributed_sampler_is_not_sharded_twice() -> None:
    sampler = DistributedSampler(Numbers(8), num_replicas=2, rank=0, shuffle=False)
    loader = as_loader(DataLoader(Numbers(8), 4, sampler=sampler), world=World(), seed=0)
    assert [rows_of(batch) for batch in loader.batches(0)] == [[0, 1, 2, 3], [4, 5, 6, 7]]


class Counting(IterableDataset[torch.Tensor]):
    """Numbers from 0, one at a time."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        return (torch.tensor(i) for i in range(7))


@pytest.mark.parametrize("wrap", [lambda d: DataLoader(d, 3), lambda d: TorchDataLoader(d, 3)])
def test_an_iterable_dataset_is_batched_and_its_batches_shared_out(wrap: Any) -> None:
    case = Case(rows=7, batch_size=3, world_size=2, epoch=0, seed=0)
    assert [[rows_of(b) for b in one.batches(0)] for one in bind(wrap(Counting()), case)] == [
        [[0, 1, 2], [6]],
        [[3, 4, 5]],
    ]


def test_a_stream_that_is_sharded_already_is_taken_whole() -> None:
    streams = DataLoader((batch for batch in torch.arange(4).split(2)), is_sharded=True)
    loader = streams.bind(World(rank=1, size=2, local_size=2), seed=0)
    assert [rows_of(batch) for batch in loader.batches(0)] == [[0, 1], [2, 3]]


@pytest.mark.parametrize("shuffle", [False, True])
def test_batches_are_copies_that_a_loop_may_change(shuffle: bool) -> None:
    data = torch.arange(6)
    loader = as_loader(DataLoader((data,), 2, shuffle=shuffle), world=World(), seed=0)
    for batch in loader.batches(0):
        batch.data[0].zero_()
    assert data.tolist() == [0, 1, 2, 3, 4, 5]
    assert sorted(row for batch in loader.batches(0) for row in rows_of(batch)) == [0, 1, 2, 3, 4, 5]


def test_dicts_of_tensors_give_dicts_and_tables_and_tuples_give_lists() -> None:
    columns = {"x": torch.arange(4), "y": torch.arange(4) * 2}
    (first, _) = DataLoader(columns, 2)
    assert {name: column.tolist() for name, column in first.items()} == {"x": [0, 1], "y": [0, 2]}
    (first, _) = DataLoader(tuple(columns.values()), 2)
    assert [column.tolist() for column in first] == [[0, 1], [0, 2]]
    table = Table.of({"x": [0, 1, 2, 3], "y": [0, 2, 4, 6]})
    (first, _) = DataLoader(table, 2, columns=["y", "x"])
    assert [column.tolist() for column in first] == [[0, 2], [0, 1]]


def test_a_loader_counts_its_batches_and_can_be_iterated_like_torchs() -> None:
    loader = trek.DataLoader((torch.arange(5),), 2)
    assert len(loader) == 3
    assert [batch[0].tolist() for batch in loader] == [[0, 1], [2, 3], [4]]
    with pytest.raises(TypeError, match="no known length"):
        len(DataLoader(iter([torch.arange(2)])))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DataLoader((torch.arange(3),), 0), "batch_size must be a whole number of at least 1, got 0"),
        (lambda: DataLoader((torch.arange(3),), True), "batch_size must be a whole number"),
        (lambda: as_loader(DataLoader((torch.arange(0),), 1), world=World(), seed=0), "has no rows"),
        (lambda: as_loader(DataLoader((torch.arange(3), torch.arange(2)), 1), world=World(), seed=0), "same length"),
        (lambda: as_loader(7, world=World(), seed=0), "must be iterable, got int"),
        (lambda: as_loader("mnist", world=World(), seed=0), "must be iterable, got str"),
        (lambda: Order(3, 0), "batch size must be at least 1, got 0"),
        (lambda: Order(3, 1, tail="cut"), "tail must be one of keep, drop, pad, got 'cut'"),  # type: ignore[arg-type]
    ],
)
def test_bad_input_is_named_with_its_value(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


def test_a_dataset_without_a_length_is_refused_with_a_remedy() -> None:
    class Endless(Dataset[int]):
        def __getitem__(self, row: int) -> int:
            return row

    with pytest.raises(InputError, match=r"Endless has no length.*IterableDataset"):
        as_loader(DataLoader(Endless(), 2), world=World(), seed=0)
