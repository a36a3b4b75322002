"""What every Loader must do, as tests: subclass `LoaderConformance` and give it a fixture named `make_loader`.

class TestMyLoader(LoaderConformance):
    @pytest.fixture
    def make_loader(self) -> Callable[[World], Loader]:
        return lambda world: DataLoader(MyData(), 4).bind(world, seed=0)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from trek.data.loaders.base import Batch, Loader
from trek.world import World
from trek.world.seeds import random_state

SIZES = (1, 2, 3)
MakeLoader = Callable[[World], Loader]


class LoaderConformance:
    """The contract of `trek.data.loaders.base`, one promise a test."""

    @pytest.fixture
    def make_loader(self) -> MakeLoader:
        """Override: a function that makes the Loader of one rank of a World, for a few dozen samples in batches."""
        raise NotImplementedError

    def samples(self, data: Any) -> list[Any]:
        """Override if a batch is not a list or dict of tensors: a value for each sample that identifies it."""
        first = next(iter(data.values())) if isinstance(data, dict) else data[0]
        return [tuple(row.reshape(-1).tolist()) for row in first]

    @pytest.mark.parametrize("size", SIZES)
    def test_reading_from_any_batch_on_gives_the_same(self, make_loader: MakeLoader, size: int) -> None:
        """`batches(epoch, start=k)` is `batches(epoch)` from its k-th batch on, whatever was read before."""
        for loader in _ranks(make_loader, size):
            for epoch in (0, 3):
                whole = _spelt(loader, epoch)
                for start in (0, 1, len(whole) - 1, len(whole)):
                    assert _spelt(loader, epoch, start=start) == whole[start:]
            loader.close()

    @pytest.mark.parametrize("size", SIZES)
    def test_a_fresh_loader_gives_the_same(self, make_loader: MakeLoader, size: int) -> None:
        """Batches depend on the epoch and the settings alone."""
        for one, other in zip(_ranks(make_loader, size), _ranks(make_loader, size), strict=True):
            _spelt(one, 0)
            assert _spelt(one, 1) == _spelt(other, 1)
            one.close()
            other.close()

    @pytest.mark.parametrize("size", SIZES)
    def test_every_rank_has_the_same_number_of_batches(self, make_loader: MakeLoader, size: int) -> None:
        """And that is `num_batches`, unless only reading can tell."""
        loaders = _ranks(make_loader, size)
        expected = {loader.num_batches for loader in loaders}
        assert len(expected) == 1
        if None not in expected:
            assert {len(_read(loader, 0)) for loader in loaders} == expected

    @pytest.mark.parametrize("size", SIZES)
    def test_every_sample_comes_once_in_an_epoch(self, make_loader: MakeLoader, size: int) -> None:
        """Ranks share them out; how many there are does not matter."""
        alone = [sample for batch in _read(_ranks(make_loader, 1)[0], 0) for sample in self._counted(batch)]
        shared = [
            sample
            for loader in _ranks(make_loader, size)
            for batch in _read(loader, 0)
            for sample in self._counted(batch)
        ]
        assert sorted(shared) == sorted(alone)

    @pytest.mark.parametrize("size", SIZES)
    def test_the_samples_of_a_global_batch_are_counted_alike_by_all(self, make_loader: MakeLoader, size: int) -> None:
        """`global_samples`, `records` and `batch_records`, where they are known."""
        loaders = _ranks(make_loader, size)
        if loaders[0].num_batches is None:
            return
        for batches in zip(*(_read(loader, 0) for loader in loaders), strict=True):
            total = sum(batch.num_samples for batch in batches)
            assert {batch.global_samples for batch in batches} <= {None, total}
        records = [loader.records(0) for loader in loaders]
        assert records.count(records[0]) == len(records)
        if records[0] is not None:
            assert records[0] == [batch.global_samples for batch in _read(loaders[0], 0)]
            assert loaders[0].batch_records is None or loaders[0].batch_records >= max(records[0])

    def test_a_rank_without_a_sample_gets_a_stand_in(self, make_loader: MakeLoader) -> None:
        """`num_samples` 0, and data of the form that a batch has."""
        for loader in _ranks(make_loader, 3):
            for batch in _read(loader, 0):
                assert self.samples(batch.data), "no batch is empty, a stand-in neither"

    @pytest.mark.parametrize("start", [0, 2])
    def test_the_caller_is_told_once_when_reading_stands_at_the_start(
        self, make_loader: MakeLoader, start: int
    ) -> None:
        """`at_start` comes before the first batch."""
        calls: list[str] = []
        loader = make_loader(_world(0, 1))
        reading = loader.batches(0, start=start, at_start=lambda: calls.append("start"))
        next(reading)
        assert calls == ["start"]
        list(reading)
        assert calls == ["start"]
        loader.close()

    def test_a_pure_loader_draws_no_random_numbers(self, make_loader: MakeLoader) -> None:
        """`is_pure`: reading ahead changes nothing."""
        loader = make_loader(_world(0, 1))
        before = repr(random_state())
        _read(loader, 0)
        assert not loader.is_pure or repr(random_state()) == before
        loader.close()

    def test_a_closed_loader_can_be_read_again(self, make_loader: MakeLoader) -> None:
        """close ends workers, no more."""
        loader = make_loader(_world(0, 1))
        first = _spelt(loader, 0)
        loader.close()
        loader.close()
        assert _spelt(loader, 0) == first
        loader.close()

    def _counted(self, batch: Batch) -> list[Any]:
        return self.samples(batch.data)[: batch.num_samples]


def _world(rank: int, size: int) -> World:
    return World(rank=rank, size=size, local_rank=rank, local_size=size)


def _ranks(make_loader: MakeLoader, size: int) -> list[Loader]:
    return [make_loader(_world(rank, size)) for rank in range(size)]


def _read(loader: Loader, epoch: int) -> list[Batch]:
    return list(loader.batches(epoch))


def _spelt(loader: Loader, epoch: int, *, start: int = 0) -> list[Any]:
    return [
        (_plain(batch.data), batch.num_samples, batch.global_samples) for batch in loader.batches(epoch, start=start)
    ]


def _plain(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _plain(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_plain(value) for value in data]
    return data.tolist() if hasattr(data, "tolist") else data
