"""Nodes that move rows between partitions. They run on the Executor as soon as they are read from."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa

from trek.data.execution.base import Executor
from trek.data.execution.parts import MemorySegment, Part, Readable
from trek.data.plans.keys import partition_of_rows
from trek.data.plans.plan import PlanNode, Source, Stream, sources
from trek.data.sources.memory import even_bounds
from trek.errors import InputError


class Exchange(PlanNode):
    """A node with its own number of partitions, which keeps columns and rows unless it says otherwise."""

    def __init__(self, node: PlanNode, num_partitions: int) -> None:
        self.inputs = (node,)
        self._num_partitions = num_partitions

    @property
    def num_partitions(self) -> int:
        """As many as were asked for."""
        return self._num_partitions

    @property
    def num_rows(self) -> int | None:
        """As many as before."""
        return self.inputs[0].num_rows

    @property
    def schema(self) -> pa.Schema | None:
        """As it was."""
        return self.inputs[0].schema

    def identity(self) -> Any:
        """The number of partitions."""
        return self._num_partitions

    def pieces(self, executor: Executor) -> list[Readable]:
        """Computed at once."""
        return list(self.run(executor))

    @abstractmethod
    def run(self, executor: Executor) -> Sequence[Readable]:
        """The partitions that come out."""


class Repartition(Exchange):
    """The same rows in the same order, in partitions that differ by one row at most."""

    def describe(self) -> str:
        """One line for `explain`."""
        return f"partition into {self._num_partitions}"

    def run(self, executor: Executor) -> Sequence[Readable]:
        """Cut by global row; a source that can do so itself is not read, and one partition is worked on by all."""
        node = self.inputs[0]
        if isinstance(node, Source) and (split := node.split(self._num_partitions)) is not None:
            return split.pieces(executor)
        if node.num_partitions < executor.num_workers:
            node = node.split(executor.num_workers) or node
        return spread_evenly(executor, evaluate(node, executor), num_partitions=self._num_partitions)


class KeyPartition(Exchange):
    """Rows with equal keys in the same partition, in the order they had."""

    def __init__(self, node: PlanNode, num_partitions: int, *, keys: Sequence[str]) -> None:
        super().__init__(node, num_partitions)
        self.keys = list(keys)

    def describe(self) -> str:
        """One line for `explain`."""
        return f"partition into {self._num_partitions} by {', '.join(self.keys)}"

    def identity(self) -> Any:
        """The number of partitions and the keys."""
        return (self._num_partitions, self.keys)

    def run(self, executor: Executor) -> Sequence[Readable]:
        """Send each row to the partition of its key."""
        return spread_by_key(executor, self.inputs[0].pieces(executor), self.keys, num_partitions=self._num_partitions)


class Gather(Exchange):
    """All rows in one partition, in order."""

    def __init__(self, node: PlanNode) -> None:
        super().__init__(node, 1)

    def describe(self) -> str:
        """One line for `explain`."""
        return "gather"

    def run(self, executor: Executor) -> Sequence[Readable]:
        """The segments of all partitions, one after the other; nothing is copied."""
        return [joined(evaluate(self.inputs[0], executor))]


class Replicate(Exchange):
    """All rows in each of `num_partitions` partitions."""

    def describe(self) -> str:
        """One line for `explain`."""
        return f"replicate to {self._num_partitions}"

    @property
    def num_rows(self) -> int | None:
        """All rows, once for each partition."""
        before = self.inputs[0].num_rows
        return None if before is None else before * self._num_partitions

    def run(self, executor: Executor) -> Sequence[Readable]:
        """The same Part for each; it exists once."""
        return [joined(evaluate(self.inputs[0], executor))] * self._num_partitions


class Sort(Exchange):
    """Rows in the order of columns; equal ones stay in the order they had, missing values come last."""

    def __init__(self, node: PlanNode, *, by: Sequence[str], descending: bool) -> None:
        super().__init__(node, node.num_partitions)
        self.by = list(by)
        self.descending = descending

    def describe(self) -> str:
        """One line for `explain`."""
        return f"sort by {', '.join(self.by)}{' descending' if self.descending else ''}"

    def identity(self) -> Any:
        """What to sort by, and which way."""
        return (self.by, self.descending)

    def run(self, executor: Executor) -> Sequence[Readable]:
        """Sort in one place, then spread evenly."""
        task = _SortTask(self.by, self.descending)
        sorted_parts = executor.map(task, [joined(evaluate(self.inputs[0], executor))])
        return spread_evenly(executor, sorted_parts, num_partitions=self._num_partitions)


class Cache(Exchange):
    """Rows that are computed once and stay in memory (mapped, where they were spilled)."""

    def __init__(self, node: PlanNode) -> None:
        super().__init__(node, node.num_partitions)
        self._parts: list[Part] | None = None
        self._lock = threading.Lock()

    @property
    def num_rows(self) -> int | None:
        """Known once computed."""
        return self.inputs[0].num_rows if self._parts is None else sum(part.num_rows for part in self._parts)

    def describe(self) -> str:
        """One line for `explain`."""
        return "cache" if self._parts is None else "cache (filled)"

    def __trek_fingerprint__(self) -> Any:
        """That of the input: caching changes nothing. A stream counts by the rows that were read."""
        if not any(source.is_here_alone for source in sources(self.inputs[0])):
            return self.inputs[0].__trek_fingerprint__()
        if self._parts is None:
            raise InputError("the rows of a stream are not known before they are read. Use cache() without lazy=True.")
        return [pa.Table.from_batches(list(part.batches())) for part in self._parts if part.num_rows]

    def run(self, executor: Executor) -> Sequence[Readable]:
        """Compute the first time."""
        with self._lock:
            if self._parts is None:
                # Held as batches of this process, so that the rows outlive the executor that computed them.
                node = self.inputs[0]
                has_stream = any(source.is_here_alone for source in sources(node))
                parts = node.pieces(executor) if has_stream else evaluate(node, executor)
                kept = [MemorySegment(list(part.batches())) for part in parts]
                self._parts = [Part((segment,)) for segment in kept]
            return self._parts

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = {**state, "_lock": threading.Lock()}


def reads_stream(node: PlanNode) -> bool:
    """Whether computing `node` consumes a stream; one that is cached is not consumed again."""
    if isinstance(node, Cache):
        return False
    return (isinstance(node, Source) and node.is_here_alone) or any(reads_stream(child) for child in node.inputs)


def evaluate(node: PlanNode, executor: Executor) -> list[Part]:
    """Every partition of `node`, computed; those that are computed already are taken as they are."""
    pieces = node.pieces(executor)
    if all(isinstance(piece, Part) for piece in pieces):
        return [piece for piece in pieces if isinstance(piece, Part)]
    return executor.map(pass_on, pieces)


def joined(parts: Sequence[Part]) -> Part:
    """All parts as one, in order."""
    return Part(tuple(segment for part in parts for segment in part.segments))


def spread_evenly(executor: Executor, parts: Sequence[Part], *, num_partitions: int) -> list[Part]:
    """Cut the rows of all parts, in order, into ranges of equal size."""
    starts = [0, *accumulate(part.num_rows for part in parts)]
    return executor.exchange(_RangeSplit(starts, num_partitions), parts, num_partitions=num_partitions)


def spread_by_key(
    executor: Executor, pieces: Sequence[Readable], keys: Sequence[str], *, num_partitions: int
) -> list[Part]:
    """Send rows with equal keys to the same partition."""
    split = _KeySplit(list(keys), num_partitions)
    return executor.exchange(split, pieces, num_partitions=num_partitions)


def pass_on(index: int, batches: Stream) -> Stream:
    """The rows as they are: a task that only has them computed and kept."""
    return batches


@dataclass(frozen=True)
class _RangeSplit:
    """Sends a row where its global index falls."""

    starts: list[int]
    num_partitions: int

    def __call__(self, index: int, batches: Stream) -> Iterator[tuple[int, pa.RecordBatch]]:
        bounds = even_bounds(self.starts[-1], self.num_partitions)
        first = self.starts[index]
        for batch in batches:
            last = first + batch.num_rows
            for target, (start, stop) in enumerate(bounds):
                low, high = max(start, first), min(stop, last)
                if low < high:
                    yield target, batch.slice(low - first, high - low)
            first = last


@dataclass(frozen=True)
class _KeySplit:
    """Sends a row where the hash of its key falls."""

    keys: list[str]
    num_partitions: int

    def __call__(self, index: int, batches: Stream) -> Iterator[tuple[int, pa.RecordBatch]]:
        for batch in batches:
            targets = partition_of_rows(batch, self.keys, num_partitions=self.num_partitions)
            for target in np.unique(targets).tolist():
                yield target, batch.take(pa.array(np.flatnonzero(targets == target)))


@dataclass(frozen=True)
class _SortTask:
    by: list[str]
    descending: bool

    def __call__(self, index: int, batches: Stream) -> Stream:
        held = list(batches)
        if held:
            table = pa.Table.from_batches(held)
            way = "descending" if self.descending else "ascending"
            keys = pa.table({name: table.column(name) for name in self.by})
            order = pa.compute.sort_indices(keys, sort_keys=[(name, way) for name in self.by])
            yield from table.take(order).to_batches()
