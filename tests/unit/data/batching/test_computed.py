"""A plan with functions runs once for everything that one loop reads of it: row count, columns, batches, epochs."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch.utils.data import SequentialSampler

import trek
from trek.data import Table
from trek.data.batching.batches import Batches
from trek.data.batching.computed import ComputedSource, evaluated
from trek.data.loaders import DataLoader
from trek.data.loaders.table import TableLoader
from trek.system.home import trek_home
from trek.world import World

NUM_ROWS = 100


class Doubled:
    """A function over rows that counts its calls."""

    def __init__(self) -> None:
        self.num_calls = 0

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        self.num_calls += 1
        return {"x": row["x"] * 2, "y": row["x"]}

    def __trek_fingerprint__(self) -> str:
        return "doubled"


@pytest.fixture
def doubled() -> Doubled:
    return Doubled()


@pytest.fixture
def table(doubled: Doubled) -> Table:
    return Table.of({"x": np.arange(NUM_ROWS)}, num_partitions=2).map(doubled, rows=True)


def folders() -> list[Path]:
    return list((trek_home() / "cache" / "computed").glob("*"))


def read_twice(loader: DataLoader) -> None:
    assert len(loader) == NUM_ROWS // 10
    assert [len(list(loader)) for _ in range(2)] == [NUM_ROWS // 10] * 2


USES: dict[str, Callable[[Table], Any]] = {
    "in order": lambda table: list(table.batches(10)),
    "two epochs": lambda table: [list(batches) for batches in [table.batches(10, shuffle=True)] for _ in range(2)],
    "chosen columns": lambda table: list(table.batches(10, columns=["y"])),
    "padded": lambda table: list(table.batches(7, tail="pad")),
    "sorted": lambda table: list(table.cache().sort("y").batches(10)),
    "a cache and its columns": lambda table: [[t.columns, t.schema, list(t.batches(10))] for t in [table.cache()]],
    "loader": lambda table: read_twice(DataLoader(table, 10)),
    "shuffled loader": lambda table: read_twice(DataLoader(table, 10, shuffle=True)),
    "loader of columns": lambda table: read_twice(DataLoader(table, 10, columns=["y"])),
    "loader with a sampler": lambda table: read_twice(DataLoader(table, 10, sampler=SequentialSampler(range(100)))),
    "loader that collates": lambda table: read_twice(DataLoader(table, 10, collate_fn=list)),
    "worker processes": lambda table: read_twice(DataLoader(table, 10, collate_fn=list, num_workers=2)),
    "logical workers": lambda table: [
        list(loader.bind(World(rank=rank, size=4), seed=0).batches(0))
        for loader in [DataLoader(table, 5, shuffle=True)]
        for rank in range(4)
    ],
    "to_arrow": lambda table: table.to_arrow(),
    "describe": lambda table: table.describe(),
    "persist": lambda table: table.persist(trek_home() / "kept"),
}


@pytest.mark.parametrize("name", USES)
def test_a_function_sees_every_row_once(table: Table, doubled: Doubled, name: str) -> None:
    USES[name](table)
    assert doubled.num_calls == NUM_ROWS


def test_batches_are_those_of_the_same_rows_in_memory(table: Table) -> None:
    here = Table.of({"x": np.arange(NUM_ROWS) * 2, "y": np.arange(NUM_ROWS)})
    for options in ({}, {"shuffle": True, "seed": 5}, {"tail": "pad"}, {"columns": ["y"]}):
        found, wanted = table.batches(7, **options), here.batches(7, **options)
        assert [[c.tolist() for c in batch] for batch in found] == [[c.tolist() for c in batch] for batch in wanted]


def test_files_with_expressions_are_not_computed_to_a_copy(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": np.arange(NUM_ROWS)}), tmp_path / "rows.parquet")
    rows = trek.data.open(tmp_path / "rows.parquet")
    for table in (rows, rows.filter(trek.col("x") < 50).with_columns(y=trek.col("x") + 1), rows.union(rows)):
        assert evaluated(table, None, in_order=True) is table


def test_rows_in_memory_are_chosen_from_where_they_lie() -> None:
    array = np.arange(NUM_ROWS)
    table = Table.of({"x": array, "y": array}).partition(3).rename({"x": "z"}).select("z")
    (batch,) = table.batches(NUM_ROWS)
    assert batch[0].data_ptr() == array.ctypes.data


def test_a_missing_column_is_refused_by_name(table: Table) -> None:
    with pytest.raises(trek.errors.InputError, match=r"column 'z' does not exist\. There are: x, y\."):
        table.batches(10, columns=["z"])


def wide() -> Table:
    def rows(batch: dict[str, Any]) -> dict[str, Any]:
        return {"image": np.repeat(batch["x"][:, None], 512, axis=1)}

    return Table.of({"x": np.arange(8192)}, num_partitions=4).map(rows)  # 32 MB


def is_mapped_from(address: int, folder: Path) -> bool:
    for line in Path("/proc/self/maps").read_text().splitlines():
        start, stop = (int(bound, 16) for bound in line.split()[0].split("-"))
        if start <= address < stop:
            return str(folder) in line
    return False


def test_a_loader_reads_rows_in_mapped_files_and_not_from_its_own_memory() -> None:
    loader = DataLoader(wide(), 64)
    bound = loader.bind(World(), seed=0)
    assert isinstance(bound, TableLoader)
    assert sum(len(batch.data[0]) for batch in bound.batches(0)) == 8192
    ours = Batches(loader.table, 64, shuffle=False, seed=0, world=World(), tail="keep", epoch=0)
    assert is_mapped_from(next(iter(ours))[0].data_ptr(), trek_home() / "cache" / "computed")


def test_ranks_that_bind_the_same_loader_read_the_same_files() -> None:
    loaders = [DataLoader(wide(), 64, shuffle=True) for _ in range(2)]
    first, second = (loader.table._node for loader in loaders)
    assert isinstance(first, ComputedSource)
    assert isinstance(second, ComputedSource)
    assert first.folder == second.folder


def test_files_go_with_the_last_use(table: Table) -> None:
    loaders = [DataLoader(table, 10), DataLoader(table, 10)]
    tables = [loader.table for loader in loaders]
    assert folders()
    del loaders, tables[0]
    assert folders()
    tables.clear()
    assert not folders()


def test_computed_rows_can_be_sent_to_a_process_of_this_machine() -> None:
    kept = evaluated(wide(), None, in_order=False)
    copy = pickle.loads(pickle.dumps(kept))
    assert copy.to_arrow().equals(kept.to_arrow())


def test_a_failing_function_leaves_no_files(tmp_path: Path) -> None:
    def fail(row: dict[str, Any]) -> dict[str, Any]:
        raise KeyError(row["x"])

    with pytest.raises(trek.errors.TrainingError, match="KeyError"):
        Table.of({"x": [1, 2]}).map(fail, rows=True).batches(1)
    assert not folders()


def test_generated_rows_are_generated_once() -> None:
    calls = []

    def rows(context: Any) -> Iterator[dict[str, Any]]:
        calls.append(context.index)
        yield {"x": np.arange(5) + 5 * context.index}

    batches = Table.generate(rows, num_partitions=2).batches(5, shuffle=True)
    assert torch.cat([x for (x,) in batches]).sort().values.tolist() == list(range(10))
    assert sorted(calls) == [0, 1]
