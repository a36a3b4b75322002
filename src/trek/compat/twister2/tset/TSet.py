"""TSet: a partitioned collection of any Python values over `trek.data.Table`, and over all workers.

Each worker has consecutive partitions, so elements have the same order on any number of workers, but for those of
`union`, which stay in their partitions. Operations on partitions are the Table's;
those over all partitions also exchange elements between the workers, who must all call them in the same order.
So must they what computes a TSet (`cache`, `persist`, `for_each`, `sink`): they begin it together, and end it together.
"""

from __future__ import annotations

import atexit
import functools
import inspect
import pickle
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

import trek
from trek.compat.twister2.TSetContext import TSetContext
from trek.errors import InputError

if TYPE_CHECKING:
    from trek.compat.twister2.Twister2Environment import Twister2Environment

ELEMENT, KEY = "element", "key"


class TSet:
    """A lazy collection; `cache`, `for_each`, `sink` and `get_data` compute it."""

    def __init__(
        self,
        table: trek.data.Table,
        env: Twister2Environment,
        parallelism: int,
        name: str = "tset",
        *,
        numbers: Sequence[int | None] | None = None,
    ) -> None:
        """`numbers` are those of the Table's partitions among all; None for one that only stands in for none."""
        self.table = table
        self._env = env
        self._parallelism = parallelism
        self._name = name
        # A Table has at least one partition, also where this worker has none.
        self._numbers = numbers or env.local_partitions(parallelism) or [None]

    @property
    def parallelism(self) -> int:
        """Number of partitions, over all workers."""
        return self._parallelism

    @property
    def name(self) -> str:
        """What made it."""
        return self._name

    # -- on each partition

    def map(self, function: Callable[..., Any]) -> TSet:
        """One element for each: `f(element)`, or `f(element, ctx)`."""
        if _num_arguments(function) == 2:
            return self.compute(lambda itr, ctx: (function(element, ctx) for element in itr))
        return self._each(lambda element: [function(element)], "map")

    def flat_map(self, function: Callable[..., Any]) -> TSet:
        """Any number of elements for each: `f(element)` returns them, `f(element, collector, ctx)` collects them."""
        if _num_arguments(function) != 3:
            return self._each(function, "flat_map")

        def collected(itr: Iterator[Any], collector: Collector, ctx: TSetContext) -> None:
            for element in itr:
                function(element, collector, ctx)

        return self.compute(collected)

    def filter(self, function: Callable[[Any], bool]) -> TSet:
        """Elements for which the function is true."""
        return self._each(lambda element: [element] if function(element) else [], "filter")

    def compute(self, function: Callable[..., Any]) -> ComputeTSet:
        """`f(itr, ctx)`, which returns the elements, or `f(itr, collector, ctx)`, which collects them."""
        return ComputeTSet(self, function)

    def direct(self) -> TSet:
        """The same."""
        return self

    def union(self, *others: TSet) -> TSet:
        """The elements of all, in the partitions that they have."""
        numbers, parallelism = list(self._numbers), self._parallelism
        for other in others:
            numbers += [None if number is None else parallelism + number for number in other._numbers]
            parallelism += other._parallelism
        table = self.table.union(*(other.table for other in others))
        return TSet(table, self._env, parallelism, "union", numbers=numbers)

    # -- over all partitions of all workers

    def partition(self, num_partitions: int | None = None) -> TSet:
        """The same elements in equal partitions."""
        return self._env.parallelize(self.get_data(), num_partitions or self._parallelism)

    def replicate(self, num_partitions: int) -> TSet:
        """Partitions that each have all elements."""
        return self._copied(self.get_data(), num_partitions, "replicate")

    def gather(self) -> TSet:
        """All elements in one partition, which is the first worker's."""
        every = self.get_data()
        return TSet(elements_table(every if self._env.worker_id == 0 else []), self._env, 1, "gather")

    def all_gather(self) -> TSet:
        """All elements in each partition."""
        return self.replicate(self._parallelism)

    def reduce(self, function: Callable[[Any, Any], Any]) -> TSet:
        """One element, in one partition, which is the first worker's."""
        total = self._reduced(function)
        return TSet(elements_table(total if self._env.worker_id == 0 else []), self._env, 1, "reduce")

    def all_reduce(self, function: Callable[[Any, Any], Any]) -> TSet:
        """The one element of `reduce`, in each partition."""
        return self._copied(self._reduced(function), self._parallelism, "all_reduce")

    # -- pairs of key and value

    def keyed_gather(self) -> TSet:
        """(key, values) for each key, in the order of the keys."""
        rows = [{KEY: key, ELEMENT: dumps(value)} for key, value in self.get_data()]
        if not rows:
            return self.gather()
        grouped = trek.data.Table.of(rows).gather(by=KEY).to_arrow().to_pylist()
        pairs = [(row[KEY], [loads(value) for value in row[ELEMENT]]) for row in grouped]
        return self._env.parallelize(pairs, self._parallelism)

    def keyed_reduce(self, function: Callable[[Any, Any], Any]) -> TSet:
        """(key, value) for each key."""
        return self.keyed_gather().map(lambda pair: (pair[0], functools.reduce(function, pair[1])))

    def keyed_partition(self) -> TSet:
        """The same pairs, equal keys in one partition."""
        return self.keyed_gather().flat_map(lambda pair: [(pair[0], value) for value in pair[1]])

    def join(self, other: TSet, how: str = "inner") -> TSet:
        """(key, (value, other value)) where keys are equal; `how` is inner, left, right or outer."""
        left = _keyed_table(self.get_data(), "left")
        right = _keyed_table(other.get_data(), "right")
        kind: Any = how
        joined = left.join(right, on=KEY, how=kind).to_arrow().to_pylist()
        pairs = [(row[KEY], (loads(row["left"]), loads(row["right"]))) for row in joined]
        return self._env.parallelize(pairs, self._parallelism)

    # -- results

    def cache(self) -> TSet:
        """Compute it now and keep it."""
        with self._env.together():
            return self._with(self.table.cache(), self._name)

    def lazy_cache(self) -> TSet:
        """Keep it when it is first computed."""
        return self._with(self.table.cache(lazy=True), self._name)

    def persist(self, path: str | None = None) -> TSet:
        """Keep it in a folder for each worker, where a later run finds it; without a `path`, until this one ends."""
        place = f"{path or _temporary_folder()}/worker-{self._env.worker_id}"
        with self._env.together():
            return self._with(self.table.persist(place, overwrite=True), self._name)

    def for_each(self, function: Callable[..., Any]) -> None:
        """Call `f(element)`, or `f(element, ctx)`, for each element of this worker."""
        if _num_arguments(function) == 2:
            self.sink(lambda itr, ctx: [function(element, ctx) for element in itr])
            return
        with self._env.together():
            for element in self.get_local_data():
                function(element)

    def sink(self, function: Callable[[Iterator[Any], TSetContext], Any]) -> None:
        """Call `f(itr, ctx)` for each partition of this worker."""
        with self._env.together():
            self.compute(lambda itr, ctx: (function(itr, ctx), ())[1]).get_local_data()

    def get_local_data(self) -> list[Any]:
        """This worker's elements."""
        return [loads(value) for value in self.table.to_arrow()[ELEMENT].to_pylist()]

    def get_data(self) -> list[Any]:
        """The elements of all workers, in the order of the workers; all of them call it together."""
        return [element for part in self._env.exchange(self.get_local_data()) for element in part]

    def get_partitions(self) -> list[list[Any]]:
        """The same by partition."""
        pairs = self.compute(lambda itr, ctx: [(ctx.index, list(itr))]).get_data()
        return [elements for _, elements in sorted(pairs, key=lambda pair: int(pair[0]))]

    def _each(self, function: Callable[[Any], Iterable[Any]], name: str) -> TSet:
        def step(batch: pa.RecordBatch) -> pa.RecordBatch:
            return elements_batch(one for value in batch[ELEMENT].to_pylist() for one in function(loads(value)))

        return self._with(self.table.map(step, arrow=True), name)

    def _with(self, table: trek.data.Table, name: str) -> TSet:
        return TSet(table, self._env, self._parallelism, name, numbers=self._numbers)

    def _copied(self, elements: list[Any], num_partitions: int, name: str) -> TSet:
        """Elements that every worker has, in each of so many partitions."""
        num_local = len(self._env.local_partitions(num_partitions))
        table = elements_table(elements).replicate(num_local) if num_local else elements_table([])
        return TSet(table, self._env, num_partitions, name)

    def _reduced(self, function: Callable[[Any, Any], Any]) -> list[Any]:
        local = self.get_local_data()
        mine = [functools.reduce(function, local)] if local else []
        totals = [element for part in self._env.exchange(mine) for element in part]
        return [functools.reduce(function, totals)] if totals else []


class ComputeTSet(TSet):
    """The result of `compute`, to which side inputs can be added."""

    def __init__(self, before: TSet, function: Callable[..., Any]) -> None:
        takes_collector = _num_arguments(function) == 3
        env, parallelism, numbers = before._env, before._parallelism, before._numbers
        self._inputs: dict[str, list[list[Any]]] = {}
        inputs = self._inputs

        def step(batches: Iterator[Any], context: Any) -> Iterator[pa.RecordBatch]:
            number = numbers[context.index]
            if number is None:
                yield elements_batch(())
                return
            itr = (loads(value) for batch in batches for value in batch[ELEMENT].tolist())
            where = TSetContext(number, env.worker_id, parallelism, "compute", inputs)
            collector = Collector()
            made = function(itr, collector, where) if takes_collector else function(itr, where)
            yield elements_batch(collector.collected if takes_collector else made if made is not None else ())

        super().__init__(before.table.compute(step), env, parallelism, "compute", numbers=numbers)

    def add_input(self, name: str, tset: TSet) -> Self:
        """Give the function another TSet's elements, as `ctx.get_input(name)`; all workers call it together."""
        self._inputs[name] = tset.get_partitions()
        return self


class Collector:
    """Takes the elements that a function of `compute` makes."""

    def __init__(self) -> None:
        self.collected: list[Any] = []

    def collect(self, element: Any) -> None:
        """Add an element."""
        self.collected.append(element)


def _num_arguments(function: Callable[..., Any]) -> int:
    """How many a function takes that have no default; 1 where Python does not know."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        return 1
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(one.kind in kinds and one.default is one.empty for one in parameters)


def _temporary_folder() -> str:
    folder = tempfile.mkdtemp(prefix="trek-tset-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def elements_batch(elements: Iterable[Any]) -> pa.RecordBatch:
    """Elements as a batch of a Table."""
    return pa.record_batch({ELEMENT: pa.array([dumps(one) for one in elements], pa.large_binary())})


def elements_table(elements: Iterable[Any]) -> trek.data.Table:
    """Elements as a Table of one partition."""
    return trek.data.Table.of(pa.Table.from_batches([elements_batch(elements)]))


def dumps(element: Any) -> bytes:
    """An element as bytes. They stay in this process: what goes to other workers is never pickled."""
    return pickle.dumps(element, protocol=5)


def loads(value: bytes | None) -> Any:
    """The element; None where a join has none."""
    return None if value is None else pickle.loads(value)  # noqa: S301 - made by `dumps` in this process


def _keyed_table(pairs: list[Any], name: str) -> trek.data.Table:
    if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
        raise InputError("join needs elements that are pairs (key, value). Map them to pairs first.")
    columns = {
        KEY: pa.array([key for key, _ in pairs]),
        name: pa.array([dumps(value) for _, value in pairs], pa.large_binary()),
    }
    return trek.data.Table.of(pa.table(columns))
