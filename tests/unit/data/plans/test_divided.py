"""Relations that are divided into partitions give the rows of one query, in the same order."""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import trek
from trek.data.execution import running_on
from trek.data.execution.base import Split
from trek.data.execution.parts import Part, Readable
from trek.data.execution.threads import ThreadExecutor
from trek.data.plans import divided
from trek.data.table import Table


class _Dividing(ThreadExecutor):
    divides_relations = True
    num_exchanges = 0

    def exchange(self, split: Split, parts: Sequence[Readable], *, num_partitions: int) -> list[Part]:
        self.num_exchanges += 1
        return super().exchange(split, parts, num_partitions=num_partitions)


@pytest.fixture
def dividing() -> Iterator[_Dividing]:
    with _Dividing(3) as executor:
        yield executor


def _columns(seed: int, count: int) -> dict[str, Any]:
    chance = random.Random(seed)

    def some(make: Callable[[], Any]) -> list[Any]:
        return [None if chance.random() < 0.1 else make() for _ in range(count)]

    return {
        "k": pa.array(some(lambda: chance.randint(-5, 5)), pa.int64()),
        "f": pa.array(some(lambda: chance.choice([0.5, -0.0, 0.0, float("nan"), float("inf"), -2.0])), pa.float64()),
        "g": pa.array(some(lambda: chance.choice([0.5, float("nan"), float("inf"), -2.0])), pa.float64()),
        "name": pa.array(some(lambda: f"n{chance.randint(0, 6)}"), pa.string()),
        "on": pa.array(some(lambda: chance.random() < 0.5), pa.bool_()),
        "day": pa.array(some(lambda: datetime.date(2024, 1, chance.randint(1, 9))), pa.date32()),
        "x": np.arange(count),
        "image": np.arange(count * 4, dtype=np.uint8).reshape(count, 2, 2),
    }


def _table(seed: int = 0, count: int = 300) -> Table:
    return Table.of(_columns(seed, count), num_partitions=4)


def _right(seed: int = 1, count: int = 40) -> Table:
    columns = _columns(seed, count)
    kept = {name: columns[name] for name in ("k", "f", "name", "x")}
    return Table.of({**kept, "k": kept["k"].cast(pa.int32())}, num_partitions=2)


def _third() -> Table:
    return Table.of({"name": [f"n{number}" for number in range(4)], "y": range(4)}, num_partitions=2)


COMBINED = {
    "total": ("x", "sum"),
    "n": ("*", "count"),
    "known": ("name", "count"),
    "least": ("g", "min"),
    "most": ("g", "max"),
    "first": ("name", "min"),
    "last": ("day", "max"),
    "some": ("on", "any"),
    "every": ("on", "all"),
    "true": ("on", "sum"),
    "floats": ("g", "sum"),
}
"""Aggregates that are put together from those of pieces."""

PLANS: list[Callable[[], Table]] = [
    *[lambda by=by: _table().sort(by, "x") for by in ("k", "f", "name", "on", "day")],  # type: ignore[misc]
    *[lambda by=by: _table().sort(by, descending=True) for by in ("k", "f", "name", "on", "day")],  # type: ignore[misc]
    *[
        lambda how=how, on=on: _table().join(_right(), on=on, how=how)  # type: ignore[misc]
        for how in ("inner", "left", "right", "outer")
        for on in ("k", "f", ["name", "k"])
    ],
    lambda: _table().join(_right(), on="k").select("x", "x_right"),
    lambda: _table().distinct("k"),
    lambda: _table().distinct("f", "name"),
    *[
        lambda by=by: _table().reduce({"x": "sum", "n": ("*", "count"), "first": ("name", "first")}, by=by)  # type: ignore[misc]
        for by in ("k", "f", "name", "on", ["day", "k"])
    ],
    *[lambda by=by: _table().reduce(COMBINED, by=by) for by in ("k", "f", "name", "on", ["day", "k"])],  # type: ignore[misc]
    *[
        lambda how=how: _table().join(_right(), on="k", how=how).reduce(COMBINED, by=["f_right", "name"])  # type: ignore[misc]
        for how in ("inner", "left", "right", "outer")
    ],
    lambda: _table().map(lambda batch: batch).reduce({"x": "sum", "f": "sum"}, by="name"),
    lambda: _table().join(_right(), on="k").filter(trek.col("x") > 40).reduce(COMBINED, by="name_right"),
    lambda: _table().join(_right(), on="k").with_columns(z=trek.col("x") * 2).reduce({"n": ("z", "sum")}, by="z"),
    lambda: _table().join(_right(), on="k").map(lambda batch: batch).reduce({"x": "sum"}, by="name"),
    lambda: _table().join(_right().join(_third(), on="name"), on="k").reduce({"x": "sum"}, by="name_right"),
    lambda: _table().sort("x", descending=True).reduce(COMBINED, by="k"),
    lambda: _table().sort("x", descending=True).reduce({"x": "first"}, by="k"),
    lambda: _table().union(_table(7)).filter(trek.col("x") < 99).reduce({"x": "max", "n": ("f", "count")}, by="k"),
    lambda: _table().filter(trek.col("x") < 0).reduce({"x": "sum"}, by="k"),
    lambda: _table().join(_right(), on="k").reduce({"x": "sum", "last": ("x_right", "last")}, by="name"),
    lambda: _table().select("k", "x", "name").gather(by="k"),
    lambda: _table().map(lambda batch: batch).join(_right(), on="name").reduce({"x": "sum"}, by="k").sort("x"),
    lambda: _table().filter(trek.col("x") < 0).sort("k"),
    lambda: _table().filter(trek.col("x") < 0).join(_right(), on="k", how="outer"),
    lambda: _table().union(_table(7)).sort("name").with_columns(y=trek.col("x") * 2),
]


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: "")
def test_rows_are_those_of_one_query_in_its_order(
    dividing: _Dividing, plan: Callable[[], Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(divided, "_FEW_BYTES", -1)
    with running_on("threads", num_workers=2):
        expected = plan().to_arrow()
    with running_on(dividing):
        found, count = plan().to_arrow(), plan().num_rows
    assert found.schema.equals(expected.schema)
    assert repr(found.to_pylist()) == repr(expected.to_pylist())  # NaN does not equal itself
    assert count == expected.num_rows
    assert dividing.num_exchanges > 0


@pytest.mark.parametrize("plan", [PLANS[-1], lambda: _table().reduce(COMBINED, by="k")], ids=lambda plan: "")
def test_few_rows_and_small_pieces_give_the_same(
    dividing: _Dividing, plan: Callable[[], Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(divided, "_PARTITION_BYTES", 100)
    with running_on("threads", num_workers=2):
        expected = plan().to_arrow()
    with running_on(dividing):
        assert repr(plan().to_arrow().to_pylist()) == repr(expected.to_pylist())


def test_aggregates_that_can_be_put_together_do_not_move_their_rows(dividing: _Dividing) -> None:
    with running_on(dividing):
        assert _table().reduce({"n": ("*", "count")}, by="k").to_numpy()["n"].sum() == 300
        assert dividing.num_exchanges == 0
        assert _table().reduce({"x": "first"}, by="k").num_rows == 12
        assert dividing.num_exchanges == 1


def test_an_aggregate_of_all_rows_is_one_query(dividing: _Dividing) -> None:
    with running_on(dividing):
        assert _table().reduce({"x": "sum"}).to_numpy()["x"].tolist() == [sum(range(300))]
    assert dividing.num_exchanges == 0


def test_a_divided_table_has_the_partitions_it_should_have(dividing: _Dividing) -> None:
    with running_on(dividing):
        sizes = _table().sort("k").compute(lambda batches, context: [{"n": [sum(len(b["x"]) for b in batches)]}])
        assert sizes.to_numpy()["n"].tolist() == [75, 75, 75, 75]
