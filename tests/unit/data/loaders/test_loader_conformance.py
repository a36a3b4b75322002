"""Every loader keeps the contract, and one of another package is chosen for the data it accepts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, Dataset, SequentialSampler, WeightedRandomSampler

import trek.data.batching.decoded
from trek.data import Table
from trek.data.loaders import Batch, DataLoader, Loader
from trek.data.loaders.loader_registry import LOADERS
from trek.data.loaders.mapped import MappedLoader
from trek.data.loaders.stream import StreamLoader
from trek.data.loaders.table import TableLoader
from trek.data.loaders.tensors import TensorLoader
from trek.testing.loader_conformance import LoaderConformance
from trek.testing.plugins import plugin_package
from trek.world import World

NUM_ROWS = 41
X = torch.arange(NUM_ROWS * 2).reshape(NUM_ROWS, 2)


class Rows(Dataset[tuple[torch.Tensor, int]]):
    """A map-style dataset."""

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return X[index], index

    def __len__(self) -> int:
        return NUM_ROWS


@pytest.mark.parametrize("shuffle", [False, True])
class TestTensors(LoaderConformance):
    """In memory."""

    @pytest.fixture
    def make_loader(self, shuffle: bool) -> Callable[[World], Loader]:
        return checked(TensorLoader, lambda: DataLoader({"x": X, "y": X[:, 0]}, 4, shuffle))


@pytest.mark.parametrize("shuffle", [False, True])
class TestTables(LoaderConformance):
    """In files."""

    @pytest.fixture
    def make_loader(self, shuffle: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[World], Loader]:
        monkeypatch.setattr(trek.data.batching.decoded, "_SMALL_BYTES", 0)
        table = Table.of({"x": X.numpy()}).partition(3).persist(tmp_path / "kept")
        return checked(TableLoader, lambda: DataLoader(table, 4, shuffle))


@pytest.mark.parametrize("options", [{"shuffle": True}, {"sampler": "random"}, {"batch_sampler": "in order"}, {}])
class TestMapped(LoaderConformance):
    """Sample by sample."""

    @pytest.fixture
    def make_loader(self, options: dict[str, Any]) -> Callable[[World], Loader]:
        samplers: dict[str, Callable[[], Any]] = {
            "random": lambda: WeightedRandomSampler([1.0] * NUM_ROWS, NUM_ROWS, replacement=False),
            "in order": lambda: BatchSampler(SequentialSampler(range(NUM_ROWS)), 4, drop_last=False),
        }
        made = {key: samplers[value]() if isinstance(value, str) else value for key, value in options.items()}
        made |= {} if "batch_sampler" in made else {"batch_size": 4}
        return checked(MappedLoader, lambda: DataLoader(Rows(), **made))


class TestWorkers(LoaderConformance):
    """Sample by sample, in worker processes."""

    @pytest.fixture
    def make_loader(self) -> Callable[[World], Loader]:
        return checked(MappedLoader, lambda: DataLoader(Rows(), 20, shuffle=True, num_workers=1))


class TestStream(LoaderConformance):
    """Any iterable of batches."""

    @pytest.fixture
    def make_loader(self) -> Callable[[World], Loader]:
        return checked(StreamLoader, lambda: DataLoader(Batches()))


class Batches:
    """Can be iterated again and again."""

    def __iter__(self) -> Iterator[list[torch.Tensor]]:
        return ([part] for part in torch.split(X, 4))


def checked(kind: type[Loader], make: Callable[[], DataLoader]) -> Callable[[World], Loader]:
    """Makes loaders, which must be of this kind."""

    def bind(world: World) -> Loader:
        loader = make().bind(world, seed=5)
        assert type(loader) is kind
        return loader

    return bind


class Repeating(TensorLoader):
    """Starts over whatever start it is given, and gives every rank everything."""

    def batches(self, epoch: int, *, start: int = 0, at_start: Callable[[], None] = lambda: None) -> Iterator[Batch]:
        at_start()
        for rows in torch.split(X, 4):
            yield Batch([rows], len(rows), len(rows))


def repeating(world: World) -> Loader:
    loader = DataLoader((X,), 4).bind(world, seed=0)
    loader.__class__ = Repeating
    return loader


@pytest.mark.parametrize(
    "test",
    [
        "test_reading_from_any_batch_on_gives_the_same",
        "test_every_sample_comes_once_in_an_epoch",
        "test_the_samples_of_a_global_batch_are_counted_alike_by_all",
    ],
)
def test_a_loader_that_breaks_the_contract_fails_the_suite(test: str) -> None:
    with pytest.raises(AssertionError):
        getattr(LoaderConformance(), test)(repeating, 2)


SOURCE = """
import torch

from trek.data.loaders import DataLoader, Loader


class Countdown:
    def __init__(self, start):
        self.start = start


class CountdownLoader(Loader):
    is_pure = True

    @classmethod
    def accepts(cls, dataset):
        return isinstance(dataset, Countdown)

    @classmethod
    def bind(cls, loading, *, world, seed):
        numbers = torch.arange(loading.dataset.start, 0, -1)
        return DataLoader((numbers,), loading.batch_size).bind(world, seed=seed)

    def batches(self, epoch, *, start=0, at_start=None):
        raise NotImplementedError
"""


class TestAPlugin(LoaderConformance):
    """A loader of another package, chosen by the data."""

    @pytest.fixture
    def make_loader(self, tmp_path: Path) -> Iterator[Callable[[World], Loader]]:
        points = {"trek.loaders": {"countdown": "countdown_loader:CountdownLoader"}}
        with plugin_package(tmp_path, module="countdown_loader", source=SOURCE, entry_points=points, refresh=LOADERS):
            import countdown_loader  # type: ignore[import-not-found]

            yield lambda world: DataLoader(countdown_loader.Countdown(NUM_ROWS), 4).bind(world, seed=0)
