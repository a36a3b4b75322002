"""Nodes that reduce rows by a function of the user's: all to one row, or those of each key.

By key, Polars brings the rows of each key together, and the functions run where the executor runs functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from trek.data import tensors
from trek.data.execution.base import Executor
from trek.data.execution.parts import Part, Readable
from trek.data.execution.polars_engine import load_polars
from trek.data.plans.conforming import alike
from trek.data.plans.exchanges import Exchange, joined
from trek.data.plans.lowering import Lowering, Query, run_query
from trek.data.plans.plan import PlanNode, Stream
from trek.data.plans.schemas import schema_of
from trek.data.plans.steps import arrays_of, batch_of_rows, call, rows_of, to_batch
from trek.data.sources.memory import BATCH_ROWS, even_bounds
from trek.errors import InputError
from trek.fingerprints import source_name

if TYPE_CHECKING:
    import polars as pl

_GROUP = "number of the group"


class Reduce(Exchange):
    """One row for each key, by key in ascending order, or one row in all: by a function."""

    derives_schema = False

    def __init__(self, node: PlanNode, combine: CombineArrays, *, keys: Sequence[str]) -> None:
        super().__init__(node, node.num_partitions if keys else 1)
        self.combine = combine
        self.keys = list(keys)

    @property
    def num_rows(self) -> int | None:
        """Known only by computing: no rows reduce to no row."""
        return None

    @property
    def schema(self) -> pa.Schema | None:
        """What a function returns is known only by computing."""
        return self._learnt_schema

    def describe(self) -> str:
        """One line for `explain`."""
        return f"reduce {source_name(self.combine.function)}" + (f" by {', '.join(self.keys)}" if self.keys else "")

    def identity(self) -> Any:
        """What is computed, and for which keys."""
        return (self.combine, self.keys, self._num_partitions)

    def run(self, executor: Executor) -> Sequence[Readable]:
        """Move rows together, then combine them."""
        if self.keys:
            grouped = replace(self.combine, group=_GROUP)
            return executor.map(_CombineTask(grouped), self._by_group(executor))
        partial_parts = executor.map(_StreamCombineTask(self.combine), self.inputs[0].pieces(executor))
        return executor.map(_CombineTask(self.combine.over_results()), [joined(partial_parts)])

    def _by_group(self, executor: Executor) -> list[Part]:
        """The rows of each key together, in their order; as many keys in one partition as in another."""
        schema = schema_of(self.inputs[0]).append(pa.field(_GROUP, pa.uint32()))
        query = Query(_Grouped(self.inputs[0], tuple(self.keys)), schema, self.describe(), self.inputs[0])
        rows = run_query(query, executor)
        starts = _starts(np.concatenate([[], *(batch.column(_GROUP).to_numpy() for batch in rows.batches())]))
        bounds = [*starts.tolist(), rows.num_rows]
        cuts = even_bounds(len(bounds) - 1, self._num_partitions)
        return [rows.slice(bounds[first], bounds[last]) for first, last in cuts]


@dataclass(frozen=True)
class _Grouped:
    """Rows sorted by key, with the number of their group."""

    node: PlanNode
    keys: tuple[str, ...]

    def __call__(self, lowering: Lowering) -> pl.LazyFrame:
        ordered = lowering.frame(self.node).sort(self.keys, nulls_last=True, maintain_order=True)
        return ordered.with_columns(load_polars().struct(self.keys).rle_id().alias(_GROUP))


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
    group: str = ""
    """The column whose value changes where the next group of rows begins, hidden from the function; else the key."""
    place: str = ""
    """Added to the function's name in errors."""

    def over_results(self) -> CombineArrays:
        """The same, applied to its own results."""
        return replace(self, place=", applied to its own results (it must return the columns that it takes)")

    def __call__(self, table: pa.Table) -> pa.Table:
        """The function's result for all rows, or for the rows of each key."""
        if not self.keys or not table.num_rows:
            return pa.Table.from_batches([self._combine(_one_batch(table))])
        groups = list(_groups(table, self.group or self.keys[0]))
        return pa.Table.from_batches(
            alike((self._combine(rows) for rows in groups), where="results to reduce")
        ).combine_chunks()

    def _combine(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        where = f"reduce {source_name(self.function)}{self.place}"
        if self.group:
            batch = batch.drop_columns([self.group])
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
class _CombineTask:
    combine: CombineArrays

    def __call__(self, index: int, batches: Stream) -> Stream:
        held = [batch for batch in batches if batch.num_rows]
        if held:
            yield from self.combine(pa.Table.from_batches(alike(held, where="results to reduce"))).to_batches(
                max_chunksize=BATCH_ROWS
            )


@dataclass(frozen=True)
class _StreamCombineTask:
    """Combines batch by batch, then the results: for functions that may be applied to their own results."""

    combine: CombineArrays

    def __call__(self, index: int, batches: Stream) -> Stream:
        results = [self.combine(pa.Table.from_batches([batch])) for batch in batches if batch.num_rows]
        if len(results) == 1:
            yield from results[0].to_batches()
        elif results:
            whole = pa.Table.from_batches(
                alike((batch for result in results for batch in result.to_batches()), where="results to reduce")
            )
            yield from self.combine.over_results()(whole).to_batches()


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [tensors.to_column(column, name="") for column in table.columns], names=table.column_names
    )


def _groups(table: pa.Table, column: str) -> Iterator[pa.RecordBatch]:
    """The runs of rows with equal values in `column`."""
    whole = _one_batch(table)
    starts = _starts(tensors.to_numpy(whole.column(column)))
    for start, stop in zip(starts, [*starts[1:], whole.num_rows], strict=True):
        yield whole.slice(int(start), int(stop - start))


def _starts(values: np.ndarray) -> np.ndarray:
    """Where runs of equal values begin."""
    return np.concatenate([[0], np.flatnonzero(values[1:] != values[:-1]) + 1]).astype(np.int64)[: len(values)]
