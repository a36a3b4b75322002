"""Twister2's TSets on one worker; on several, see tests/e2e."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

from trek.compat.twister2 import TSetContext
from trek.compat.twister2.tset.fn.SourceFunc import SourceFunc
from trek.compat.twister2.Twister2Environment import Twister2Environment
from trek.compat.twister2deepnet.deepnet.util import utils
from trek.errors import InputError


class Numbers(SourceFunc):
    def __init__(self, count: int) -> None:
        self.count, self.i = count, 0

    def has_next(self) -> bool:
        return self.i < self.count

    def next(self) -> Any:
        self.i += 1
        return self.i


@pytest.fixture
def env() -> Twister2Environment:
    return Twister2Environment()


def test_a_source_is_copied_to_each_partition_and_read_again_from_its_start(env: Twister2Environment) -> None:
    source = env.create_source(Numbers(3), 2)
    assert source.get_data() == [1, 2, 3, 1, 2, 3]
    assert source.cache().get_data() == [1, 2, 3, 1, 2, 3]


def test_operations_on_partitions(env: Twister2Environment) -> None:
    tset = env.parallelize(range(6), 2)
    assert tset.map(lambda x: x * 10).filter(lambda x: x > 20).get_data() == [30, 40, 50]
    assert tset.flat_map(lambda x: [x] * (x % 2)).get_data() == [1, 3, 5]
    assert tset.union(env.parallelize([9])).direct().get_data() == [0, 1, 2, 3, 4, 5, 9]
    seen: list[Any] = []
    tset.for_each(seen.append)
    assert seen == list(range(6))


def test_a_function_sees_whole_partitions_its_context_and_side_inputs(env: Twister2Environment, tmp_path: Path) -> None:
    tset = env.parallelize(range(6), 2)

    def collected(itr: Iterator[Any], collector: Any, ctx: TSetContext) -> None:
        collector.collect((ctx.index, ctx.worker_id, ctx.parallelism, sum(itr)))

    assert tset.compute(collected).cache().get_data() == [(0, 0, 2, 3), (1, 0, 2, 12)]

    def shifted(itr: Iterator[Any], ctx: TSetContext) -> list[Any]:
        return [x + ctx.get_input("shift")[0] for x in itr]

    assert tset.compute(shifted).add_input("shift", env.parallelize([100])).get_data() == [100, 101, 102, 103, 104, 105]
    sunk: list[Any] = []
    tset.sink(lambda itr, ctx: sunk.append((ctx.index, list(itr))))
    assert sorted(sunk) == [(0, [0, 1, 2]), (1, [3, 4, 5])]
    assert tset.map(lambda x: -x).persist(str(tmp_path / "kept")).get_data() == [0, -1, -2, -3, -4, -5]


def test_side_inputs_are_added_to_the_tset_and_read_by_partition(env: Twister2Environment) -> None:
    def combined(itr: Iterator[Any], collector: Any, ctx: TSetContext) -> None:
        for element, other in zip(itr, ctx.get_input("x").consumer(), strict=True):
            collector.collect((ctx.get_index(), element, other))

    tset = env.parallelize_list([1, 2, 3, 4], 2).compute(combined)
    assert tset.add_input("x", env.parallelize([10, 20, 30, 40], 2).cache()) is tset
    assert tset.get_data() == [(0, 1, 10), (0, 2, 20), (1, 3, 30), (1, 4, 40)]
    firsts = env.parallelize(range(2), 2).compute(lambda itr, ctx: [ctx.get_input("x").first_or_default("none")])
    assert firsts.add_input("x", env.parallelize([7])).get_data() == [7, 7], "of the only partition"
    assert firsts.add_input("x", env.parallelize([8], 2)).get_data() == ["none", 8]
    with pytest.raises(InputError, match="input 'x' has 3 partitions, and the TSet 2"):
        firsts.add_input("x", env.parallelize([1, 2, 3], 3)).get_data()


def test_functions_may_take_the_context(env: Twister2Environment) -> None:
    tset = env.parallelize(["a", "b"], 2)
    assert tset.map(lambda x, ctx: (x, ctx.index)).get_data() == [("a", 0), ("b", 1)]
    assert tset.map(lambda x, suffix="!": x + suffix).get_data() == ["a!", "b!"]
    assert tset.map(str.upper).get_data() == ["A", "B"]

    def twice(element: Any, collector: Any, ctx: TSetContext) -> None:
        for _ in range(2):
            collector.collect(f"{element}{ctx.index}")

    assert tset.flat_map(twice).get_data() == ["a0", "a0", "b1", "b1"]
    seen: list[Any] = []
    tset.for_each(lambda x, ctx: seen.append((x, ctx.index)))
    assert sorted(seen) == [("a", 0), ("b", 1)]


def test_partitions_of_a_union_have_numbers_of_their_own(env: Twister2Environment) -> None:
    union = env.parallelize(range(4), 2).union(env.parallelize([9]))
    numbered = union.compute(lambda itr, ctx: [(ctx.index, ctx.parallelism, list(itr))]).get_data()
    assert numbered == [(0, 3, [0, 1]), (1, 3, [2, 3]), (2, 3, [9])]
    assert union.get_partitions() == [[0, 1], [2, 3], [9]]


def test_pairs_come_from_keyed_sources_and_dicts(env: Twister2Environment) -> None:
    class Pairs(Numbers):
        def next(self) -> Any:
            return ("odd" if self.i % 2 else "even", super().next())

    assert env.create_keyed_source(Pairs(3), 1).keyed_gather().get_data() == [("even", [1, 3]), ("odd", [2])]
    assert env.parallelize_dict({"a": 1, "b": 2}).keyed_reduce(max).get_data() == [("a", 1), ("b", 2)]


def test_a_tset_is_kept_on_disk_without_a_path(env: Twister2Environment) -> None:
    calls: list[Any] = []
    kept = env.parallelize(range(3)).map(lambda x: calls.append(x) or x).persist()
    assert kept.get_data() == kept.get_data() == [0, 1, 2]
    assert calls == [0, 1, 2]


def test_operations_over_all_partitions(env: Twister2Environment) -> None:
    tset = env.parallelize(range(5), 2)
    assert tset.reduce(lambda a, b: a + b).get_data() == [10]
    assert tset.all_reduce(max).get_data() == [4, 4], "in each partition"
    assert tset.gather().get_data() == [0, 1, 2, 3, 4]
    assert tset.all_gather().get_local_data() == [*range(5), *range(5)]
    assert tset.partition(3).get_data() == [0, 1, 2, 3, 4]
    assert env.parallelize([]).reduce(max).get_data() == []


def test_pairs_are_grouped_reduced_and_joined_by_key(env: Twister2Environment) -> None:
    pairs = env.parallelize([("a", 1), ("b", 2), ("a", 3)], 2)
    assert pairs.keyed_gather().get_data() == [("a", [1, 3]), ("b", [2])]
    assert pairs.keyed_reduce(lambda x, y: x + y).get_data() == [("a", 4), ("b", 2)]
    assert pairs.keyed_partition().get_data() == [("a", 1), ("a", 3), ("b", 2)]
    other = env.parallelize([("a", "x"), ("c", "y")])
    assert pairs.join(other).get_data() == [("a", (1, "x")), ("a", (3, "x"))]
    outer = pairs.join(other, how="outer").get_data()
    assert ("b", (2, None)) in outer
    assert ("c", (None, "y")) in outer


class Recorded(Twister2Environment):
    """Notes when it meets the other workers."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[str] = []

    def meet(self) -> None:
        self.events.append("all are there")


@pytest.mark.parametrize("act", ["cache", "persist", "for_each", "sink"])
def test_workers_begin_and_end_together_what_computes(act: str, tmp_path: Path) -> None:
    """A worker that was early did not find the folders that the first one made before."""
    env = Recorded()
    tset = env.parallelize([1]).map(lambda x: env.events.append("computed"))
    arguments = {"persist": [str(tmp_path)], "for_each": [lambda x: None], "sink": [lambda itr, ctx: list(itr)]}
    getattr(tset, act)(*arguments.get(act, []))
    assert env.events == ["all are there", "computed", "all are there"]


def test_arrays_of_any_shape_are_elements(env: Twister2Environment) -> None:
    source = env.parallelize([np.zeros((4, 784), np.uint8), np.arange(4)])
    images, targets = utils.tset_to_numpy(source)
    assert (images.shape, targets.shape) == ((4, 784), (4,))


def test_a_script_that_is_started_alone_starts_its_workers() -> None:
    def start_again(num_workers: int) -> NoReturn:
        raise RuntimeError(f"started as {num_workers}")

    with pytest.raises(RuntimeError, match="started as 6"):
        Twister2Environment(resources=[{"instances": 4}, {"instances": 2}], start_again=start_again)


def test_mistakes_are_named(env: Twister2Environment) -> None:
    source: Any = object()
    with pytest.raises(InputError, match="has_next\\(\\) and next\\(\\), got object"):
        env.create_source(source)
    with pytest.raises(InputError, match="parallelism must be a whole number of at least 1, got 0"):
        env.parallelize([1], 0)
    with pytest.raises(InputError, match="pairs \\(key, value\\)"):
        env.parallelize([1]).join(env.parallelize([2]))
    with pytest.raises(InputError, match="instances must be"):
        Twister2Environment(resources=[{"instances": 0}])
