"""Every option of a DataLoader does for every kind of data what it says, or is refused: none is ignored."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, Dataset, IterableDataset, SequentialSampler, TensorDataset
from torch.utils.data import DataLoader as TorchDataLoader

from trek.data import Table
from trek.data.loaders import DataLoader, as_loader
from trek.errors import InputError
from trek.world import World

NUM_ROWS = 10


class Samples(Dataset[int]):
    def __len__(self) -> int:
        return NUM_ROWS

    def __getitem__(self, row: int) -> int:
        return row


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        yield from range(NUM_ROWS)


class CountedStream(Stream):
    def __len__(self) -> int:
        return NUM_ROWS


class Batches:
    def __iter__(self) -> Iterator[torch.Tensor]:
        yield from torch.arange(NUM_ROWS).split(4)


KINDS: dict[str, Callable[[], Any]] = {
    "tensors": lambda: (torch.arange(NUM_ROWS), torch.arange(NUM_ROWS) + 100),
    "TensorDataset": lambda: TensorDataset(torch.arange(NUM_ROWS), torch.arange(NUM_ROWS) + 100),
    "dict": lambda: {"x": torch.arange(NUM_ROWS), "y": torch.arange(NUM_ROWS) + 100},
    "table": lambda: Table.of({"x": np.arange(NUM_ROWS), "y": np.arange(NUM_ROWS) + 100}),
    "computed table": lambda: Table.of({"x": np.arange(NUM_ROWS)}).map(lambda b: {**b, "y": b["x"] + 100}),
    "samples": Samples,
    "iterable": Stream,
    "iterable with a length": CountedStream,
    "batches": Batches,
}
IN_MEMORY = {"tensors", "TensorDataset", "dict", "table", "computed table"}
NAMED = {"dict", "table", "computed table"}
SIZED = {*IN_MEMORY, "samples"}
ITERABLE = {"iterable", "iterable with a length"}
SAMPLED = {*ITERABLE, *SIZED}


def rows_of(loader: Any) -> list[list[int]]:
    """The first column of each batch."""
    found = []
    for batch in loader:
        values = batch["x"] if isinstance(batch, dict) else batch[0] if isinstance(batch, list | tuple) else batch
        found.append([int(value) for value in values])
    return found


def rows_of_second_rank(loader: DataLoader) -> list[int]:
    bound = loader.bind(World(rank=1, size=2, local_rank=1, local_size=2), seed=0)
    return [row for batch in rows_of(batch.data for batch in bound.batches(0)) for row in batch]


def sizes(loader: DataLoader) -> list[int]:
    return [len(batch) for batch in rows_of(loader)]


def sample(rows: list[Any]) -> list[int]:
    first = [row["x"] if isinstance(row, dict) else row[0] if isinstance(row, tuple | list) else row for row in rows]
    return [1000 + int(value) for value in first]


Applied = Callable[[DataLoader], bool]
OPTIONS: list[tuple[dict[str, Any], set[str], Applied]] = [
    ({"batch_size": 4}, SAMPLED, lambda loader: sizes(loader) == [4, 4, 2]),
    ({"global_batch_size": 4}, SAMPLED, lambda loader: sizes(loader) == [4, 4, 2]),
    ({"batch_size": 4, "drop_last": True}, SAMPLED, lambda loader: sizes(loader) == [4, 4]),
    ({"batch_size": 4, "tail": "drop"}, SAMPLED, lambda loader: sizes(loader) == [4, 4]),
    ({"batch_size": 4, "tail": "pad"}, SIZED, lambda loader: sizes(loader) == [4, 4, 4]),
    ({"shuffle": True}, SIZED, lambda loader: sorted(r := rows_of(loader)) == [[i] for i in range(10)] != r),
    ({"sampler": SequentialSampler(range(3))}, SIZED, lambda loader: rows_of(loader) == [[0], [1], [2]]),
    (
        {"batch_sampler": BatchSampler(SequentialSampler(range(5)), 3, False)},
        SIZED,
        lambda loader: rows_of(loader) == [[0, 1, 2], [3, 4]],
    ),
    ({"collate_fn": sample}, SAMPLED, lambda loader: next(iter(loader)) == [1000]),
    ({"columns": ["x"]}, NAMED, lambda loader: len(next(iter(loader))) == 1),
    ({"columns": ["x"], "collate_fn": len}, NAMED, lambda loader: next(iter(loader)) == 1),
    ({"is_sharded": True}, {*ITERABLE, "batches"}, lambda loader: rows_of_second_rank(loader) == list(range(NUM_ROWS))),
    ({"pin_memory": True}, SAMPLED, lambda loader: len(rows_of(loader)) == NUM_ROWS),
    ({"num_workers": 1}, SAMPLED, lambda loader: len(rows_of(loader)) == NUM_ROWS),
    ({"num_workers": 1, "collate_fn": sample}, SAMPLED, lambda loader: next(iter(loader)) == [1000]),
    ({"num_workers": 1, "prefetch_factor": 1}, SAMPLED, lambda loader: len(rows_of(loader)) == NUM_ROWS),
    ({"num_workers": 1, "timeout": 60}, SAMPLED, lambda loader: len(rows_of(loader)) == NUM_ROWS),
    ({"num_workers": 1, "worker_init_fn": id}, SAMPLED, lambda loader: len(rows_of(loader)) == NUM_ROWS),
    ({"generator": torch.Generator()}, ITERABLE, lambda loader: len(rows_of(loader)) == NUM_ROWS),
    ({"in_order": False}, set(), bool),
    ({"num_workers": -1}, set(), bool),
    ({"prefetch_factor": 2}, set(), bool),
    ({"timeout": 5}, set(), bool),
    ({"persistent_workers": True}, set(), bool),
    ({"multiprocessing_context": "spawn"}, set(), bool),
    ({"batch_size": 4, "drop_last": True, "tail": "keep"}, set(), bool),
]


@pytest.mark.filterwarnings("ignore:'pin_memory' argument is set")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("options", "takes", "is_applied"), OPTIONS, ids=[" ".join(one[0]) for one in OPTIONS])
def test_an_option_is_applied_or_refused(
    kind: str, options: dict[str, Any], takes: set[str], is_applied: Applied
) -> None:
    if kind in takes:
        assert is_applied(DataLoader(KINDS[kind](), **options))
    else:
        with pytest.raises(InputError, match="|".join(options)):
            DataLoader(KINDS[kind](), **options)


@pytest.mark.parametrize("kind", sorted(IN_MEMORY))
def test_workers_that_data_in_memory_does_not_need_are_reported(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    loader = DataLoader(KINDS[kind](), 4, num_workers=2, prefetch_factor=1)
    assert sizes(loader) == [4, 4, 2]
    [record] = caplog.records
    assert record.getMessage().startswith("num_workers, prefetch_factor: no effect on")


@pytest.mark.parametrize("kind", KINDS)
def test_defaults_that_are_spelt_out_are_no_options(kind: str) -> None:
    defaults = {"shuffle": False, "num_workers": 0, "drop_last": False, "sampler": None, "pin_memory": False}
    reading = {"timeout": 0, "prefetch_factor": None, "persistent_workers": False, "generator": None, "in_order": True}
    assert rows_of(DataLoader(KINDS[kind](), **defaults, **reading))


@pytest.mark.parametrize(
    "options", [{}, {"drop_last": True}, {"num_workers": 1}, {"drop_last": True, "num_workers": 1}]
)
@pytest.mark.parametrize("dataset", [Stream(), CountedStream()])
def test_an_iterable_dataset_gives_what_torch_gives(dataset: Any, options: dict[str, Any]) -> None:
    assert rows_of(DataLoader(dataset, 4, **options)) == rows_of(TorchDataLoader(dataset, 4, **options))


@pytest.mark.parametrize("kind", ["TensorDataset", "samples"])
def test_options_of_a_loader_of_torch_are_taken_as_they_are(kind: str) -> None:
    theirs = TorchDataLoader(KINDS[kind](), 4, num_workers=1, drop_last=True, timeout=60, prefetch_factor=1)
    ours = as_loader(theirs, world=World(), seed=0)
    assert rows_of(batch.data for batch in ours.batches(0)) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_a_dict_of_samples_by_number_is_read_as_a_dataset() -> None:
    assert rows_of(DataLoader(dict(enumerate(range(NUM_ROWS))), 4)) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_a_missing_column_of_a_dict_is_refused_by_name() -> None:
    with pytest.raises(InputError, match=r"column 'z' does not exist. There are: x, y."):
        list(DataLoader(KINDS["dict"](), columns=["z"]))
