"""Windows over the rows of a partition, by count or by time, tumbling or sliding; also over streams that never end.

A window comes out as soon as the rows that close it came in, under its own beginning in the column `window`: the
number of its first row, or the time it starts at. Windows by time begin at multiples of the step; empty ones are left
out.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from trek.data.plans.aggregates import Aggregate, AggregateSpec, aggregate_table, parse_aggregates
from trek.data.plans.conforming import settled
from trek.data.plans.keyed import CombineArrays
from trek.data.plans.plan import Context, PartitionStep, PlanNode, Stream
from trek.data.plans.steps import schema_of_no_rows
from trek.errors import InputError
from trek.fingerprints import source_name

if TYPE_CHECKING:
    from trek.data.table import Table

COLUMN = "window"
_HELD_ROWS = 1 << 14  # windows of a stream must come soon, even if a column of its rows is not known yet
_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


class Windows:
    """Rows cut into windows; choose what to compute for each."""

    def __init__(self, node: PlanNode, windowing: Windowing) -> None:
        self._node = node
        self._windowing = windowing

    def rows(self) -> Table:
        """All rows of all windows, with the column `window`; a row comes once for every window it is in."""
        return self._table(None, "rows")

    def map(self, function: Callable[[dict[str, np.ndarray]], Any]) -> Table:
        """What `function` returns for the rows of each window, a dict of arrays; `window` is one of them."""
        return self._table(
            CombineArrays(function, (COLUMN,), by_rows=False, gives_many=True), f"map {source_name(function)}"
        )

    def reduce(self, how: AggregateSpec) -> Table:
        """One row for each window: aggregates as for `Table.reduce`."""
        from trek.data.table import Table

        aggregates = parse_aggregates(how, Table(self._node).schema, keys=[COLUMN])
        title = "reduce " + ", ".join(f"{a.function}({a.column})" for a in aggregates)
        return self._table(AggregateWindows(tuple(aggregates)), title)

    def _table(self, combine: Callable[[pa.Table], pa.Table] | None, title: str) -> Table:
        from trek.data.table import Table

        return Table(WindowStep(self._node, self._windowing, combine, title))


class Windowing(ABC):
    """Which rows make up which window. Immutable: `cut` holds its state in local variables."""

    @abstractmethod
    def cut(self, batches: Stream, *, where: str) -> Iterator[tuple[np.ndarray, np.ndarray, pa.Table]]:
        """For each step forward: beginnings of the windows that closed, for each row of them; row numbers; the rows."""

    @abstractmethod
    def begin_column(self, begins: np.ndarray) -> pa.Array:
        """Beginnings in the type a user sees."""


class WindowStep(PartitionStep):
    """Cuts a partition's stream into windows and combines each."""

    def __init__(
        self, node: PlanNode, windowing: Windowing, combine: Callable[[pa.Table], pa.Table] | None, title: str
    ) -> None:
        super().__init__(node)
        self.windowing = windowing
        self.combine = combine
        self.title = title

    def describe(self) -> str:
        """One line for `explain`."""
        return f"{self.title} over {self.windowing}"

    def identity(self) -> Any:
        """The windows and what is computed for each."""
        return (self.windowing, self.combine)

    def apply(self, batches: Stream, context: Context) -> Stream:
        """Windows as they close."""
        where = f"{self}, partition {context.index}"
        filled = settled(((b, "") for b in batches if b.num_rows), title=where, num_held_rows=_HELD_ROWS)
        for begins, numbers, held in self.windowing.cut(filled, where=where):
            rows = held.take(pa.array(numbers)).append_column(COLUMN, self.windowing.begin_column(begins))
            result = rows if self.combine is None else self.combine(rows)
            yield from result.combine_chunks().to_batches()

    def schema_without_rows(self) -> pa.Schema | None:
        """What is computed for no window."""
        return schema_of_no_rows(self.inputs[0], self._of_nothing)

    def _of_nothing(self, batch: pa.RecordBatch) -> pa.Table:
        rows = pa.Table.from_batches([batch]).append_column(COLUMN, self.windowing.begin_column(np.empty(0, np.int64)))
        return rows if self.combine is None else self.combine(rows)

    def __str__(self) -> str:
        return self.describe()


@dataclass(frozen=True)
class AggregateWindows:
    """Aggregates of the rows of each window, in the order of the windows."""

    aggregates: tuple[Aggregate, ...]

    def __call__(self, table: pa.Table) -> pa.Table:
        """One row for each window."""
        return aggregate_table(table, self.aggregates, keys=(COLUMN,))


@dataclass(frozen=True)
class CountWindowing(Windowing):
    """Windows of `size` rows, a new one every `step` rows."""

    size: int
    step: int
    keeps_tail: bool

    def cut(self, batches: Stream, *, where: str) -> Iterator[tuple[np.ndarray, np.ndarray, pa.Table]]:
        """Closed by the row that fills it; what is left at the end is closed then, or dropped."""
        held: pa.Table | None = None
        base = next_begin = 0
        for batch in batches:
            held = pa.Table.from_batches([*(held.to_batches() if held is not None else ()), batch])
            total = base + held.num_rows
            begins = np.arange(next_begin, total - self.size + 1, self.step)
            if len(begins):
                yield *self._rows(begins, total, base), held
                next_begin = int(begins[-1]) + self.step
                held = held.slice(min(next_begin, total) - base)
                base = min(next_begin, total)
        if held is not None and self.keeps_tail and base + held.num_rows > next_begin:
            total = base + held.num_rows
            yield *self._rows(np.arange(next_begin, total, self.step), total, base), held

    def begin_column(self, begins: np.ndarray) -> pa.Array:
        """Row numbers."""
        return pa.array(begins)

    def _rows(self, begins: np.ndarray, total: int, base: int) -> tuple[np.ndarray, np.ndarray]:
        return _spans(begins, begins - base, np.minimum(begins + self.size, total) - base)

    def __str__(self) -> str:
        return f"windows of {self.size} rows" + ("" if self.step == self.size else f", every {self.step}")


@dataclass(frozen=True)
class TimeWindowing(Windowing):
    """Windows that span `size` of a time column, a new one every `step`; times must not decrease."""

    column: str
    kind: pa.DataType
    size: float
    step: float
    keeps_tail: bool

    def cut(self, batches: Stream, *, where: str) -> Iterator[tuple[np.ndarray, np.ndarray, pa.Table]]:
        """Closed by a row at or past its end, or by the end of the rows."""
        held: pa.Table | None = None
        done: float = -np.inf
        for batch in batches:
            held = pa.Table.from_batches([*(held.to_batches() if held is not None else ()), batch])
            times = self._times(held, where)
            last = times[-1]
            begins = self._begins(times)
            closed = begins[(begins > done) & (begins + self.size <= last)]
            if len(closed):
                yield *self._rows(closed, times), held
                done = closed[-1]
                held = held.slice(int(np.searchsorted(times, self._oldest_open(done))))
        if held is not None and held.num_rows and self.keeps_tail:
            times = self._times(held, where)
            begins = self._begins(times)
            yield *self._rows(begins[begins > done], times), held

    def begin_column(self, begins: np.ndarray) -> pa.Array:
        """Times, in the type of the column; numbers in 64 bits, since a window may begin before what fewer hold."""
        if pa.types.is_date32(self.kind):
            return pa.array(begins, pa.int32()).cast(self.kind)
        if pa.types.is_temporal(self.kind):
            return pa.array(begins).cast(self.kind)
        return pa.array(begins, pa.int64() if pa.types.is_integer(self.kind) else pa.float64())

    def _times(self, held: pa.Table, where: str) -> np.ndarray:
        column = held.column(self.column)
        if pa.types.is_date32(column.type):
            column = column.cast(pa.int32())
        wide = pa.float64() if pa.types.is_floating(column.type) else pa.int64()
        try:
            times: np.ndarray = column.cast(wide).to_numpy()
        except pa.ArrowInvalid as error:
            raise InputError(f"{where}: times in {self.column!r} must be below 2**63: {error}.") from error
        if column.null_count or (times.dtype.kind == "f" and not np.isfinite(times).all()):
            raise InputError(
                f"{where}: times in {self.column!r} must not be missing, NaN or infinite. Filter such rows out first."
            )
        if (times[1:] < times[:-1]).any():
            raise InputError(f"{where}: times in {self.column!r} must not decrease; sort() the rows first.")
        return times

    def _begins(self, times: np.ndarray) -> np.ndarray:
        """Beginnings of all windows that hold one of the times."""
        if not len(times):
            return np.empty(0)
        reach = int(np.ceil(self.size / self.step))
        newest = np.unique(np.floor_divide(times, self.step))
        candidates = np.unique((newest[:, None] - np.arange(reach)).ravel()) * self.step
        low, high = np.searchsorted(times, candidates), np.searchsorted(times, candidates + self.size)
        begins: np.ndarray = candidates[high > low]
        return begins

    def _oldest_open(self, done: float) -> float:
        return done + self.step

    def _rows(self, begins: np.ndarray, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return _spans(begins, np.searchsorted(times, begins), np.searchsorted(times, begins + self.size))

    def __str__(self) -> str:
        return f"windows of {self.size} of {self.column}" + ("" if self.step == self.size else f", every {self.step}")


def make_windowing(
    schema: pa.Schema,
    size: float | timedelta,
    *,
    step: float | timedelta | None,
    by: str | None,
    tail: Literal["keep", "drop"],
) -> Windowing:
    """The windowing that the arguments of `Table.window` describe."""
    if tail not in ("keep", "drop"):
        raise InputError(f"tail must be 'keep' or 'drop', got {tail!r}.")
    if COLUMN in schema.names:
        raise InputError(f"windows add a column {COLUMN!r}, which exists already. rename() it first.")
    if by is None:
        return CountWindowing(_rows_of(size), _rows_of(step if step is not None else size), tail == "keep")
    if by not in schema.names:
        raise InputError(f"column {by!r} does not exist. There are: {', '.join(schema.names)}.")
    kind = schema.field(by).type
    span, stride = _span_of(size, kind, by), _span_of(step if step is not None else size, kind, by)
    return TimeWindowing(by, kind, span, stride, tail == "keep")


def _rows_of(size: float | timedelta) -> int:
    if not isinstance(size, int) or size < 1:
        raise InputError(
            f"a window must have a whole number of rows of at least 1, got {size!r}. For time windows, give `by`."
        )
    return size


def _span_of(size: float | timedelta, kind: pa.DataType, by: str) -> float:
    if pa.types.is_timestamp(kind):
        if not isinstance(size, timedelta) or size <= timedelta(0):
            raise InputError(f"column {by!r} is a timestamp: a window must span a timedelta above zero, got {size!r}.")
        return round(size / timedelta(microseconds=1)) * 1000 // _NANOSECONDS[kind.unit]
    if pa.types.is_date32(kind):
        if not isinstance(size, timedelta) or size < timedelta(days=1) or size % timedelta(days=1):
            raise InputError(f"column {by!r} is a date: a window must span a timedelta of whole days, got {size!r}.")
        return size.days
    if isinstance(size, timedelta) or size <= 0 or not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise InputError(f"column {by!r} has type {kind}: a window must span a number above zero, got {size!r}.")
    if not math.isfinite(size) or (pa.types.is_integer(kind) and size != int(size)):
        raise InputError(
            f"column {by!r} has type {kind}: a window must span a whole number of at least 1, got {size!r}."
        )
    return int(size) if pa.types.is_integer(kind) else size


def _spans(begins: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For windows of rows [start, stop): their beginnings, once for each row, and the rows' numbers."""
    lengths = stops - starts
    offsets = np.repeat(starts - np.concatenate([[0], np.cumsum(lengths)[:-1]]), lengths)
    return np.repeat(begins, lengths), np.arange(int(lengths.sum())) + offsets
