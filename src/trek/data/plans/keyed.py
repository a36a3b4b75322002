"""Nodes that bring rows together by key or bring them down to one: reduce, gather by key, join.

Where functions run in this process and the rows fit in memory, nothing is exchanged: Arrow works on all rows at once
with its own threads. Otherwise rows travel to the partition of their key first, spilling as they must. The order of
keys is not promised in either case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from trek.data import tensors
from trek.data.execution.base import Executor
from trek.data.execution.parts import Part, Readable
from trek.data.plans.aggregates import Aggregate, aggregate_table
from trek.data.plans.exchanges import Exchange, evaluate, joined, spread_by_key, spread_evenly
from trek.data.plans.joins import How, join_tables, joined_names
from trek.data.plans.plan import PlanNode, Stream
from trek.data.plans.steps import arrays_of, batch_of_rows, call, conform, rows_of, to_batch
from trek.data.sources.memory import BATCH_ROWS
from trek.errors import InputError
from trek.fingerprints import source_name

Combine = Callable[[pa.Table], pa.Table]
"""From all rows of some keys, or all rows there are, to the rows that come out."""


class Reduce(Exchange):
    """One row for each key, or one row in all: by aggregates, or by a function."""

    def __init__(self, node: PlanNode, combine: Combine, *, keys: Sequence[str], title: str) -> None:
        super().__init__(node, node.num_partitions if keys else 1)
        self.combine = combine
        self.keys = list(keys)
        self.title = title

    @property
    def num_rows(self) -> int | None:
        """Known only by computing: no rows reduce to no row."""
        return None

    @property
    def schema(self) -> pa.Schema | None:
        """Known for aggregates; what a function returns is known only by computing."""
        before = self.inputs[0].schema
        return (
            None
            if before is None or isinstance(self.combine, CombineArrays)
            else self.combine(before.empty_table()).schema
        )

    def describe(self) -> str:
        """One line for `explain`."""
        return f"reduce {self.title}" + (f" by {', '.join(self.keys)}" if self.keys else "")

    def identity(self) -> Any:
        """What is computed, and for which keys."""
        return (self.combine, self.keys, self._num_partitions)

    def run(self, executor: Executor) -> Sequence[Readable]:
        """Move rows together, then combine them."""
        task = _CombineTask(self.combine)
        if self.keys:
            return run_by_key(executor, task, [self.inputs[0]], self.keys, num_partitions=self._num_partitions)
        if isinstance(self.combine, CombineArrays):
            partial_parts = executor.map(_StreamCombineTask(self.combine), self.inputs[0].pieces(executor))
            return executor.map(_CombineTask(self.combine.over_results()), [joined(partial_parts)])
        return executor.map(task, [joined(evaluate(self.inputs[0], executor))])


class KeyedGather(Exchange):
    """One row for each key; every other column becomes a list of its values, in the order of the rows."""

    def __init__(self, node: PlanNode, *, keys: Sequence[str]) -> None:
        super().__init__(node, node.num_partitions)
        self.keys = list(keys)

    @property
    def num_rows(self) -> int | None:
        """Known only by computing."""
        return None

    @property
    def schema(self) -> pa.Schema | None:
        """Keys, then lists."""
        before = self.inputs[0].schema
        if before is None:
            return None
        keys = [(key, before.field(key).type) for key in self.keys]
        lists = [(field.name, pa.list_(field.type)) for field in before if field.name not in self.keys]
        return pa.schema([*keys, *lists])

    def describe(self) -> str:
        """One line for `explain`."""
        return f"gather by {', '.join(self.keys)}"

    def identity(self) -> Any:
        """The keys."""
        return (self.keys, self._num_partitions)

    def run(self, executor: Executor) -> Sequence[Readable]:
        """Move rows together by key, then make lists."""
        task = _CombineTask(ListsByKey(tuple(self.keys)))
        return run_by_key(executor, task, [self.inputs[0]], self.keys, num_partitions=self._num_partitions)


class Join(Exchange):
    """Rows of two plans side by side where their keys are equal."""

    def __init__(
        self,
        left: PlanNode,
        right: PlanNode,
        *,
        on: Sequence[str],
        how: How,
        suffix: str,
        columns: Sequence[str] | None = None,
    ) -> None:
        super().__init__(left, max(left.num_partitions, right.num_partitions))
        self.inputs = (left, right)
        self.on = list(on)
        self.how = how
        self.suffix = suffix
        self.columns = columns

    @property
    def num_rows(self) -> int | None:
        """Known only by computing."""
        return None

    @property
    def schema(self) -> pa.Schema | None:
        """Keys, then the columns of the left, then those of the right."""
        left, right = self.inputs[0].schema, self.inputs[1].schema
        if left is None or right is None:
            return None
        names = joined_names(left.names, right.names, self.on, suffix=self.suffix)
        fields = [(name, left.field(name).type) for name in [*self.on, *(n for n in left.names if n not in self.on)]]
        whole = pa.schema([*fields, *((new, right.field(name).type) for name, new in names.items())])
        return whole if self.columns is None else pa.schema([whole.field(name) for name in self.columns])

    def describe(self) -> str:
        """One line for `explain`."""
        return f"{self.how} join on {', '.join(self.on)}"

    def identity(self) -> Any:
        """Keys, kind and names."""
        return (self.on, self.how, self.suffix, self._num_partitions, self.columns)

    def narrowed(self, names: Sequence[str]) -> PlanNode | None:
        """The join of these columns alone."""
        return Join(*self.inputs, on=self.on, how=self.how, suffix=self.suffix, columns=list(names))

    def run(self, executor: Executor) -> Sequence[Readable]:
        """Move rows of both sides together by key, then join each partition."""
        schemas = _schema_of(self.inputs[0]), _schema_of(self.inputs[1])
        task = _JoinTask(tuple(self.on), self.how, self.suffix, self.columns, *schemas)
        return run_by_key(executor, task, list(self.inputs), self.on, num_partitions=self._num_partitions)


def run_by_key(
    executor: Executor, task: Any, nodes: Sequence[PlanNode], keys: Sequence[str], *, num_partitions: int
) -> list[Part]:
    """Run `task` on all rows at once where that is cheap, else on the rows of each partition of keys."""
    if executor.shares_memory:
        inputs = [evaluate(node, executor) for node in nodes]
        if sum(part.nbytes for parts in inputs for part in parts) <= executor.memory_limit_bytes // 2:
            results = executor.map(task, *[[joined(parts)] for parts in inputs])
            return spread_evenly(executor, results, num_partitions=num_partitions)
        pieces: list[Sequence[Readable]] = list(inputs)
    else:
        pieces = [node.pieces(executor) for node in nodes]
    spread = [spread_by_key(executor, parts, keys, num_partitions=num_partitions) for parts in pieces]
    return executor.map(task, *spread)


@dataclass(frozen=True)
class AggregateAll:
    """Combine by Arrow's aggregates."""

    aggregates: tuple[Aggregate, ...]
    keys: tuple[str, ...]

    def __call__(self, table: pa.Table) -> pa.Table:
        """The aggregates, by key."""
        return aggregate_table(table, self.aggregates, keys=self.keys)


@dataclass(frozen=True)
class CombineArrays:
    """Combine by a function from a dict of arrays to one of a single row; by rows, from two rows to one.

    Keys precede the columns that the function returns, unless they are among them.
    """

    function: Callable[..., Any]
    keys: tuple[str, ...]
    by_rows: bool
    gives_many: bool = False
    """Whether the function may return any number of rows."""
    place: str = ""
    """Added to the function's name in errors."""

    def over_results(self) -> CombineArrays:
        """The same, applied to its own results."""
        return replace(self, place=", applied to its own results (it must return the columns that it takes)")

    def __call__(self, table: pa.Table) -> pa.Table:
        """The function's result for all rows, or for the rows of each key."""
        if not self.keys:
            return pa.Table.from_batches([self._combine(_one_batch(table))])
        groups = list(_groups(table, self.keys))
        return pa.Table.from_batches(_alike(self._combine(rows) for rows in groups)).combine_chunks()

    def _combine(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        where = f"reduce {source_name(self.function)}{self.place}"
        if self.by_rows:
            rows = list(rows_of(batch))
            result = rows[0]
            for row in rows[1:]:
                result = call(self.function, result, row, where=where)
            return self._keyed(batch_of_rows([result], where=where), batch)
        made = to_batch(call(self.function, arrays_of(batch), where=where), where=where)
        if made.num_rows != 1 and not self.gives_many:
            raise InputError(
                f"{where}: the function returned {made.num_rows} rows; expected one, as columns of length 1."
            )
        return self._keyed(made, batch)

    def _keyed(self, made: pa.RecordBatch, batch: pa.RecordBatch) -> pa.RecordBatch:
        first = pa.array(np.zeros(made.num_rows, np.int64))
        columns = {key: batch.column(key).take(first) for key in self.keys if key not in made.schema.names}
        columns |= dict(zip(made.schema.names, made.columns, strict=True))
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


@dataclass(frozen=True)
class ListsByKey:
    """Combine into one row for each key, with lists of the other columns."""

    keys: tuple[str, ...]

    def __call__(self, table: pa.Table) -> pa.Table:
        """Keys, then lists."""
        ordered, starts = _sorted_by_key(table, self.keys)
        offsets = pa.array(np.append(starts, ordered.num_rows), pa.int32())
        columns = {key: ordered.column(key).take(pa.array(starts)) for key in self.keys}
        for name in ordered.column_names:
            if name not in self.keys:
                columns[name] = pa.ListArray.from_arrays(offsets, tensors.to_column(ordered.column(name), name=name))
        return pa.table(columns)


@dataclass(frozen=True)
class _CombineTask:
    combine: Combine

    def __call__(self, index: int, batches: Stream) -> Stream:
        held = [batch for batch in batches if batch.num_rows]
        if held:
            yield from self.combine(pa.Table.from_batches(_alike(held))).to_batches(max_chunksize=BATCH_ROWS)


@dataclass(frozen=True)
class _StreamCombineTask:
    """Combines batch by batch, then the results: for functions that may be applied to their own results."""

    combine: CombineArrays

    def __call__(self, index: int, batches: Stream) -> Stream:
        results = [self.combine(pa.Table.from_batches([batch])) for batch in batches if batch.num_rows]
        if len(results) == 1:
            yield from results[0].to_batches()
        elif results:
            whole = pa.Table.from_batches(_alike(batch for result in results for batch in result.to_batches()))
            yield from self.combine.over_results()(whole).to_batches()


@dataclass(frozen=True)
class _JoinTask:
    on: tuple[str, ...]
    how: How
    suffix: str
    columns: Sequence[str] | None
    left_schema: pa.Schema
    right_schema: pa.Schema

    def __call__(self, index: int, left: Stream, right: Stream) -> Stream:
        tables = [
            pa.Table.from_batches(list(batches), schema)
            for batches, schema in ((left, self.left_schema), (right, self.right_schema))
        ]
        rows = join_tables(*tables, on=self.on, how=self.how, suffix=self.suffix, columns=self.columns)
        yield from rows.to_batches()


def _schema_of(node: PlanNode) -> pa.Schema:
    from trek.data.table import Table

    return Table(node).schema


def _alike(batches: Iterable[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Batches of equal columns; an error that names the column where they are not."""
    held = list(batches)
    return [conform(batch, held[0].schema, where="results to reduce") for batch in held]


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [tensors.to_column(column, name="") for column in table.columns], names=table.column_names
    )


def _groups(table: pa.Table, keys: Sequence[str]) -> Iterator[pa.RecordBatch]:
    ordered, starts = _sorted_by_key(table, keys)
    whole = _one_batch(ordered)
    for start, stop in zip(starts, [*starts[1:], ordered.num_rows], strict=True):
        yield whole.slice(int(start), int(stop - start))


def _sorted_by_key(table: pa.Table, keys: Sequence[str]) -> tuple[pa.Table, np.ndarray]:
    """Rows sorted by key, in their order within each; and where each key begins."""
    codes = np.zeros(table.num_rows, np.int64)
    for key in keys:
        encoded = tensors.to_column(table.column(key), name=key).dictionary_encode(null_encoding="encode")
        indices = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        _, codes = np.unique(codes * (len(encoded.dictionary) + 1) + indices, return_inverse=True)
    order = np.argsort(codes, kind="stable")
    changes = np.flatnonzero(np.diff(codes[order])) + 1
    return table.take(pa.array(order)), np.concatenate([[0], changes]).astype(np.int64)
