"""A Table takes torch's samplers and collate functions as any dataset does, and refuses what it cannot honour."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, SequentialSampler, SubsetRandomSampler, TensorDataset, WeightedRandomSampler
from torch.utils.data import DataLoader as TorchDataLoader

from trek.data import Table
from trek.data.loaders import DataLoader
from trek.errors import InputError
from trek.world import World

_X = np.arange(20)
_IMAGES = np.arange(20 * 6, dtype=np.float32).reshape(20, 2, 3)


@pytest.fixture(params=["memory", "partitions", "file", "computed"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    whole = Table.of({"x": _X, "image": _IMAGES})
    made: dict[str, Any] = {
        "memory": lambda: whole,
        "partitions": lambda: whole.partition(3),
        "file": lambda: whole.partition(2).persist(tmp_path / "kept"),
        "computed": lambda: whole.map(lambda batch: batch),
    }
    return made[request.param]()


def spelt(batches: Any) -> list[Any]:
    return [[column.tolist() for column in batch] for batch in batches]


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 4, "sampler": list(range(19, 2, -3))},
        {"batch_size": 4, "sampler": list(range(10)), "drop_last": True},
        {"batch_sampler": BatchSampler(SequentialSampler(range(20)), 6, drop_last=False)},
        {"batch_size": 7, "collate_fn": lambda rows: [torch.stack(column) for column in zip(*rows, strict=True)]},
    ],
    ids=["sampler", "sampler, last batch dropped", "batch sampler", "collate function"],
)
def test_options_mean_what_they_mean_for_torch(options: dict[str, Any], table: Table) -> None:
    """A Table ignored the batch size and the order, and gave batches of Arrow as they came."""
    theirs = TorchDataLoader(TensorDataset(torch.tensor(_X), torch.tensor(_IMAGES)), **options)
    loader = DataLoader(table, **options)
    assert spelt(loader) == spelt(theirs)
    assert len(loader) == len(theirs)


def test_a_sampler_that_draws_is_shared_out_and_draws_anew_in_every_epoch() -> None:
    for sampler in (WeightedRandomSampler([1.0] * 20, 8), SubsetRandomSampler(range(8))):
        loader = DataLoader(Table.of({"x": _X}), 2, sampler=sampler)
        ranks = [loader.bind(World(rank=r, size=2, local_rank=r, local_size=2), seed=0) for r in (0, 1)]
        first, second = ([batch.data[0].tolist() for rank in ranks for batch in rank.batches(e)] for e in (0, 1))
        assert sum(map(len, first)) == sum(map(len, second)) == 8
        assert first != second


def test_a_collate_function_gets_rows_with_their_texts() -> None:
    table = Table.of({"text": ["a", "bb", "ccc"], "n": np.arange(3)})
    batches = list(DataLoader(table, 2, collate_fn=lambda rows: [(text, int(n)) for text, n in rows]))
    assert batches == [[("a", 0), ("bb", 1)], [("ccc", 2)]]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_only_the_columns_asked_for_arrive_also_from_workers(num_workers: int, table: Table) -> None:
    loader = DataLoader(table, 5, columns=["x"], num_workers=num_workers, collate_fn=list)
    assert [[int(x) for (x,) in batch] for batch in loader] == _X.reshape(4, 5).tolist()


@pytest.mark.parametrize("make", [lambda: Table.of({"x": _X}), lambda: TensorDataset(torch.tensor(_X))])
def test_every_pass_has_another_order_and_a_new_loader_begins_again(make: Any) -> None:
    """Iterated twice, a loader repeated its order."""
    loader = DataLoader(make(), 4, shuffle=True)
    first, second = spelt(loader), spelt(loader)
    assert first != second
    for epoch in (first, second):
        assert sorted(x for batch in epoch for x in batch[0]) == _X.tolist()
    assert spelt(DataLoader(make(), 4, shuffle=True)) == first


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batchsize": 7}, r"no option 'batchsize'. Did you mean 'batch_size'\?"),
        ({"shufle": True}, "Did you mean 'shuffle'"),
        ({"colums": ["x"]}, "Did you mean 'columns'"),
        ({"qqq": 1}, "has no option 'qqq'. It has: "),
        ({"sampler": [1, 2], "shuffle": True}, "both decide the order"),
        ({"batch_size": 4, "batch_sampler": [[1, 2]]}, "batch_size has no effect"),
        ({"shuffle": True, "batch_sampler": [[1, 2]]}, "shuffle has no effect"),
        ({"tail": "drop", "batch_sampler": [[1, 2]]}, "tail has no effect"),
    ],
)
def test_options_that_do_not_exist_or_exclude_each_other_are_refused(options: dict[str, Any], message: str) -> None:
    """Misspelt options were swallowed, and of two that decide the same thing one was ignored."""
    with pytest.raises(InputError, match=message):
        DataLoader(Table.of({"x": _X}), **options)
