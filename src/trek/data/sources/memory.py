"""Rows that are already in memory: arrays, Arrow tables, pandas frames, lists of dicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from trek.data import tensors
from trek.data.column_types import kept_table
from trek.data.execution.base import Executor
from trek.data.execution.parts import MemorySegment, Part, Readable
from trek.data.plans.plan import PlanNode, Source, Stream
from trek.data.plans.steps import batch_of_rows
from trek.errors import InputError

if TYPE_CHECKING:
    import polars as pl

    from trek.data.plans.lowering import Lowering

BATCH_ROWS = 8192


class MemorySource(Source):
    """An Arrow table cut into equal ranges of rows."""

    def __init__(self, table: pa.Table, *, num_partitions: int = 1, title: str = "memory") -> None:
        self.table = table
        self.title = title
        self._num_partitions = num_partitions
        self._parts: list[Part] | None = None

    @property
    def num_partitions(self) -> int:
        """How many ranges."""
        return self._num_partitions

    @property
    def num_rows(self) -> int:
        """Rows of the table."""
        return int(self.table.num_rows)

    @property
    def schema(self) -> pa.Schema:
        """Columns of the table."""
        return self.table.schema

    def whole(self) -> pa.Table:
        """The table."""
        return self.table

    def describe(self) -> str:
        """One line for `explain`."""
        return self.title

    def identity(self) -> Any:
        """The content."""
        return (self.table, self._num_partitions)

    def read(self, index: int) -> Stream:
        """The rows of a range."""
        return self._kept_parts()[index].batches()

    def pieces(self, executor: Executor) -> list[Readable]:
        """Parts over the table's own memory."""
        return list(self._kept_parts())

    def narrowed(self, names: Sequence[str]) -> PlanNode | None:
        """The table without the other columns."""
        return MemorySource(self.table.select(names), num_partitions=self._num_partitions, title=self.title)

    def lowered(self, lowering: Lowering) -> pl.LazyFrame | None:
        """The table, over the same memory."""
        return lowering.held(self.table.to_batches(), self.table.schema)

    def single(self, index: int) -> PlanNode | None:
        """One range."""
        return HeldSource(self._kept_parts()[index], self.table.schema, title=self.title)

    def split(self, num_partitions: int) -> Source:
        """The same table in other ranges."""
        return MemorySource(self.table, num_partitions=num_partitions, title=self.title)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_parts": None}

    def _kept_parts(self) -> list[Part]:
        if self._parts is None:
            bounds = even_bounds(self.num_rows, self._num_partitions)
            ranges = [self.table.slice(start, stop - start) for start, stop in bounds]
            self._parts = [
                Part((MemorySegment(rows.to_batches(max_chunksize=BATCH_ROWS), nbytes=rows.nbytes),)) for rows in ranges
            ]
        return self._parts


class HeldSource(Source):
    """A partition that was computed and is kept."""

    travels_once = False
    """One task reads it; a process that remembered it would hold on to its rows long after."""

    def __init__(self, part: Part, schema: pa.Schema, *, title: str) -> None:
        self.part = part
        self.title = title
        self._schema = schema

    @property
    def num_partitions(self) -> int:
        """One."""
        return 1

    @property
    def num_rows(self) -> int:
        """Rows of the partition."""
        return self.part.num_rows

    @property
    def schema(self) -> pa.Schema:
        """Columns of the partition."""
        return self._schema

    def describe(self) -> str:
        """One line for `explain`."""
        return self.title

    def identity(self) -> Any:
        """The content."""
        return pa.Table.from_batches(list(self.part.batches()), self._schema)

    def read(self, index: int) -> Stream:
        """The rows."""
        return self.part.batches()

    def pieces(self, executor: Executor) -> list[Readable]:
        """The partition itself."""
        return [self.part]

    def lowered(self, lowering: Lowering) -> pl.LazyFrame | None:
        """The rows where they lie."""
        return lowering.held(list(self.part.batches()), self._schema)

    def single(self, index: int) -> PlanNode | None:
        """Itself."""
        return self


def even_bounds(num_rows: int, num_partitions: int) -> list[tuple[int, int]]:
    """Ranges of rows that differ by one row at most, in order."""
    cuts = [num_rows * index // num_partitions for index in range(num_partitions + 1)]
    return list(pairwise(cuts))


def table_from(data: Any) -> pa.Table:
    """An Arrow table of `data`: a dict of columns, a list of dicts, a pandas or Polars frame, or Arrow itself.

    An array or tensor alone becomes the column `value`.
    """
    table = kept_table(_table_from(data))
    require_distinct(table.column_names, where="the table")
    return table


def require_distinct(names: Sequence[str], *, where: str) -> None:
    """Refuse columns of the same name: one of them could not be accessed."""
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{where} has {names.count(name)} columns called {name!r}. Give each a different name.")


def _table_from(data: Any) -> pa.Table:
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, Mapping):
        return _table_from_columns(data)
    if type(data).__module__.startswith("pandas"):
        return _table_from_pandas(data)
    if isinstance(data, np.ndarray) or hasattr(data, "detach"):
        return _table_from_columns({"value": data})
    if hasattr(data, "__arrow_c_stream__"):
        return pa.table(data)
    if isinstance(data, Sequence) and not isinstance(data, str | bytes) and data:
        return _table_from_sequence(data)
    raise InputError(
        f"cannot make a Table from {type(data).__name__} {str(data)[:60]!r}. Pass a dict of columns, a list of dicts, "
        "a pandas frame or an Arrow table."
    )


def _table_from_pandas(frame: Any) -> pa.Table:
    names = [str(name) for name in getattr(frame, "columns", ["value"])]
    require_distinct(names, where="the frame")
    frame = frame.to_frame("value") if frame.ndim == 1 else frame
    try:
        return pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InputError(f"the frame holds values of different types in one column: {' '.join(error.args)}.") from error


def _table_from_columns(columns: Mapping[str, Any]) -> pa.Table:
    arrays = {str(name): tensors.to_column(values, name=str(name)) for name, values in columns.items()}
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise InputError(f"columns have different lengths: {lengths}. Every column must have one value for each row.")
    return pa.table(arrays)


def _table_from_sequence(rows: Sequence[Any]) -> pa.Table:
    if isinstance(rows[0], Mapping):
        return pa.Table.from_batches([batch_of_rows(list(rows), where="list of rows")])
    return pa.table({"value": tensors.to_column(rows, name="value")})
