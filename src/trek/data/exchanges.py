"""Nodes that move rows between partitions. They run on the Executor's `exchange` as soon as they are read from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import pyarrow as pa

from trek.data.execution.base import Executor
from trek.data.execution.parts import Part, Readable
from trek.data.plan import Node, Source, Stream
from trek.data.sources.memory import even_bounds


class Repartition(Node):
    """The same rows in the same order, in partitions that differ by one row at most."""

    def __init__(self, node: Node, num_partitions: int) -> None:
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

    def describe(self) -> str:
        """One line for `explain`."""
        return f"partition into {self._num_partitions}"

    def identity(self) -> Any:
        """The number of partitions."""
        return self._num_partitions

    def pieces(self, executor: Executor) -> list[Readable]:
        """Computed at once."""
        node = self.inputs[0]
        split = node.split(self._num_partitions) if isinstance(node, Source) else None
        if split is not None:
            return split.pieces(executor)
        parts = executor.map(pass_on, node.pieces(executor))
        return list(spread_evenly(executor, parts, num_partitions=self._num_partitions))


def spread_evenly(executor: Executor, parts: list[Part], *, num_partitions: int) -> list[Part]:
    """Cut the rows of all parts, in order, into ranges of equal size."""
    starts = [0, *accumulate(part.num_rows for part in parts)]
    return executor.exchange(_RangeSplit(starts, num_partitions), parts, num_partitions=num_partitions)


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


def pass_on(index: int, batches: Stream) -> Stream:
    """The rows as they are: a task that only has them computed and kept."""
    return batches
