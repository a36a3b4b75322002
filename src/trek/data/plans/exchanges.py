"""Nodes that move rows between partitions. They run on the Executor as soon as they are read from."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from trek.data.execution.base import Executor
from trek.data.execution.parts import MemorySegment, Part, Readable
from trek.data.plans.conforming import alike
from trek.data.plans.keys import partition_of_rows
from trek.data.plans.lowering import collect, evaluate, read_here
from trek.data.plans.plan import PlanNode, Source, Stream, sources
from trek.data.sources.memory import even_bounds
from trek.errors import InputError

if TYPE_CHECKING:
    import polars as pl

    from trek.data.plans.lowering import Lowering


class Exchange(PlanNode):
    """A node with its own number of partitions, which keeps columns and rows unless it says otherwise."""

    derives_schema = True

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
        return spread_evenly(joined(evaluate(node, executor)), num_partitions=self._num_partitions)

    def whole(self) -> pa.Table | None:
        """The same rows."""
        return self.inputs[0].whole()

    def lowered(self, lowering: Lowering) -> pl.LazyFrame | None:
        """The same rows, of what is relational."""
        return _same_rows(self.inputs[0], lowering)


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

    def whole(self) -> pa.Table | None:
        """The same rows."""
        return self.inputs[0].whole()

    def lowered(self, lowering: Lowering) -> pl.LazyFrame | None:
        """The same rows, of what is relational."""
        return _same_rows(self.inputs[0], lowering)


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

    @property
    def schema(self) -> pa.Schema | None:
        """Known once computed, if there is a row."""
        whole = None if self.inputs[0].schema is not None else self.whole()
        return self.inputs[0].schema if whole is None else whole.schema

    def require_unchanged(self) -> None:
        """Rows that are kept are those of the files as they were."""
        if self._parts is None:
            super().require_unchanged()

    def whole(self) -> pa.Table | None:
        """All rows, once computed."""
        batches = [batch for part in self._parts or () for batch in part.batches()]
        return pa.Table.from_batches(alike(batches, where="between partitions")) if batches else None

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
                streams = read_here(node, executor) if has_stream else collect(node, executor)
                self._parts = [Part((MemorySegment(list(stream)),)) for stream in streams]
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


def _same_rows(node: PlanNode, lowering: Lowering) -> pl.LazyFrame | None:
    return lowering.frame(node) if node.is_relational or isinstance(node, Source) else None


def joined(parts: Sequence[Part]) -> Part:
    """All parts as one, in order."""
    return Part(tuple(segment for part in parts for segment in part.segments))


def spread_evenly(part: Part, *, num_partitions: int) -> list[Part]:
    """Ranges of equal size of the rows, in order; nothing is copied."""
    return [part.slice(start, stop) for start, stop in even_bounds(part.num_rows, num_partitions)]


def spread_by_key(
    executor: Executor, pieces: Sequence[Readable], keys: Sequence[str], *, num_partitions: int
) -> list[Part]:
    """Send rows with equal keys to the same partition."""
    split = _KeySplit(list(keys), num_partitions)
    return executor.exchange(split, pieces, num_partitions=num_partitions)


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
