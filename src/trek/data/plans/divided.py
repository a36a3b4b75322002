"""Divided relations: joins, sorts, aggregates by key and distinct rows through exchanges, where executors ask for it.

Each gives the rows of one query over everything, in the same order. Rows of a key go to one partition, which is a query
of its own: by ranges of the first key where the result is in the order of keys, by hash where it is in the order of
rows; those are numbered before, and sent to where their numbers are after. Aggregates that can be put together from
aggregates of pieces are computed so, of rows in any order. Nothing but samples comes to this process.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trek.data.execution.base import Executor
from trek.data.execution.parts import Part, Readable
from trek.data.execution.polars_engine import load_polars
from trek.data.plans import exchanges
from trek.data.plans.aggregates import Aggregate, aggregate_table, combined
from trek.data.plans.conforming import conform
from trek.data.plans.keys import partition_of_rows
from trek.data.plans.lowering import LoweredPiece, evaluate, pieces_of
from trek.data.plans.plan import PlanNode, Stream
from trek.data.plans.schemas import schema_of

if TYPE_CHECKING:
    from trek.data.plans.relations import Aggregation, Join, Relation

LEFT, RIGHT = "number of the left row", "number of the right row"
_FIRST, _SECOND = "position of the row", "position among equals"
_SAMPLES = 1000
"""Of each partition, to find ranges of keys with about as many rows."""
_PARTITION_BYTES = 256 << 20
"""About what one task holds in memory."""
_FEW_BYTES = 1 << 20
"""What one task may do as well as several."""


def by_ranges(relation: Relation, executor: Executor, *, key: str, descending: bool = False) -> list[Part]:
    """A relation whose rows are in the order of `key`: each range of its values is a partition."""
    (node,) = relation.inputs
    return _ranges(relation, evaluate(node, executor), schema_of(node), executor, key=key, descending=descending)


def aggregated(relation: Aggregation, executor: Executor) -> list[Part]:
    """One row for each key, in their order: of each piece first, where that is possible, so that few rows travel."""
    (node,) = relation.inputs
    key = relation.keys[0]
    combining = combined(relation.aggregates)
    if combining is None:
        return by_ranges(relation, executor, key=key)
    partial = _Partial(relation.aggregates, tuple(relation.keys), schema_of(node))
    parts = executor.map(partial, pieces_of(node.in_any_order(), executor))
    whole, schema = copy.copy(relation), schema_of(relation)
    whole.aggregates = combining
    if sum(part.nbytes for part in parts) > _FEW_BYTES:
        return _ranges(whole, parts, schema, executor, key=key)
    return executor.compute([_piece(whole, [(exchanges.joined(parts), schema)], executor)])


def _ranges(
    relation: Relation,
    parts: Sequence[Part],
    schema: pa.Schema,
    executor: Executor,
    *,
    key: str,
    descending: bool = False,
) -> list[Part]:
    num_targets = _num_targets(parts, executor)
    bounds = _bounds(executor.map(_Sample(key), parts), num_targets)
    split = _RangeSplit(key, bounds, num_targets, descending=descending)
    ranges = executor.exchange(split, parts, num_partitions=num_targets)
    return executor.compute([_piece(relation, [(one, schema)], executor) for one in ranges])


def distinct(relation: Relation, executor: Executor, *, by: Sequence[str]) -> list[Part]:
    """The first row of each kind, in the order of the rows."""
    (node,) = relation.inputs
    parts = evaluate(node, executor)
    num_targets = _num_targets(parts, executor)
    schema = _with_numbers(schema_of(node), LEFT)
    spread = _spread(parts, schema, pa.schema([schema.field(name) for name in by]), executor, num_targets=num_targets)
    pieces = [_piece(relation, [(one, schema)], executor) for one in spread]
    order = _Order(LEFT, LEFT, _rows_in(parts), 0)
    return _in_order(pieces, schema_of(node), order, executor, num_targets=num_targets)


def joined(relation: Join, executor: Executor) -> list[Part]:
    """A join, in the order of the rows of one side."""
    sides = [evaluate(node, executor) for node in relation.inputs]
    pieces = _joined(relation, sides, executor, columns=[*schema_of(relation).names, LEFT, RIGHT])
    num_left, num_right = (_rows_in(parts) for parts in sides)
    order = _Order(RIGHT, LEFT, num_right, 0) if relation.how == "right" else _Order(LEFT, RIGHT, num_left, num_right)
    return _in_order(pieces, schema_of(relation), order, executor, num_targets=len(pieces))


def joined_in_any_order(relation: Join, executor: Executor) -> Sequence[Readable]:
    """The same rows by partition, to be computed when read."""
    sides = [evaluate(node.in_any_order(), executor) for node in relation.inputs]
    return _joined(relation, sides, executor, columns=schema_of(relation).names)


def _joined(
    relation: Join, sides: Sequence[Sequence[Part]], executor: Executor, *, columns: Sequence[str]
) -> list[LoweredPiece]:
    num_targets = _num_targets([part for parts in sides for part in parts], executor)
    schemas = [_with_numbers(schema_of(node), name) for node, name in zip(relation.inputs, (LEFT, RIGHT), strict=True)]
    left, right = (
        _spread(parts, schema, relation.compared_keys, executor, num_targets=num_targets)
        for parts, schema in zip(sides, schemas, strict=True)
    )
    chosen = copy.copy(relation)
    chosen.columns = columns
    return [_piece(chosen, list(zip(pair, schemas, strict=True)), executor) for pair in zip(left, right, strict=True)]


# -- pieces: queries over one partition


def _piece(relation: Any, inputs: Sequence[tuple[Part, pa.Schema]], executor: Executor) -> LoweredPiece:
    """The relation over one partition of its inputs."""
    from trek.data.sources.memory import HeldSource

    one = copy.copy(relation)
    one.inputs = tuple(HeldSource(part, schema, title="exchanged rows") for part, schema in inputs)
    one.forget_schema()
    return LoweredPiece(one, executor.memory_limit_bytes)


def _in_order(
    pieces: Sequence[Readable], schema: pa.Schema, order: _Order, executor: Executor, *, num_targets: int
) -> list[Part]:
    """The rows of all pieces by their numbers, and without them."""
    from trek.data.plans.relations import Sort
    from trek.data.plans.steps import Project
    from trek.data.sources.memory import HeldSource

    placed = executor.exchange(_OrderSplit(order, num_targets), pieces, num_partitions=num_targets)
    numbered = schema.append(pa.field(_FIRST, pa.int64())).append(pa.field(_SECOND, pa.int64()))
    names = {name: name for name in schema.names}

    def ordered(part: Part) -> PlanNode:
        rows = Sort(HeldSource(part, numbered, title="exchanged rows"), by=[_FIRST, _SECOND], descending=False)
        return Project(rows, names, verb="select")

    return executor.compute([LoweredPiece(ordered(part), executor.memory_limit_bytes) for part in placed])


def _num_targets(parts: Sequence[Part], executor: Executor) -> int:
    needed = -(-sum(part.nbytes for part in parts) // _PARTITION_BYTES)
    return max(1, needed, min(executor.num_workers, len(parts)))


def _rows_in(parts: Sequence[Part]) -> int:
    return sum(part.num_rows for part in parts)


# -- by hash, with numbers


def _with_numbers(schema: pa.Schema, name: str) -> pa.Schema:
    return schema.append(pa.field(name, pa.int64()))


def _spread(
    parts: Sequence[Part], schema: pa.Schema, keys: pa.Schema, executor: Executor, *, num_targets: int
) -> list[Part]:
    """Rows with equal keys together, each with its number, which is the last column of `schema`."""
    starts = np.cumsum([0, *(part.num_rows for part in parts)])[:-1].tolist()
    split = _NumberedSplit(keys, schema, tuple(starts), num_targets)
    return executor.exchange(split, parts, num_partitions=num_targets)


@dataclass(frozen=True)
class _NumberedSplit:
    """Sends a row where the hash of its key falls, with its number among all rows."""

    keys: pa.Schema
    schema: pa.Schema
    starts: tuple[int, ...]
    num_targets: int

    def __call__(self, index: int, batches: Stream) -> Iterator[tuple[int, pa.RecordBatch]]:
        at = self.starts[index]
        plain = pa.schema(list(self.schema)[:-1])
        for batch in batches:
            alike = conform(batch, plain, where="between partitions")
            numbers = pa.array(np.arange(at, at + batch.num_rows))
            at += batch.num_rows
            keys = [alike.column(field.name).cast(field.type) for field in self.keys]
            hashed = pa.RecordBatch.from_arrays(keys, names=self.keys.names)
            targets = partition_of_rows(hashed, self.keys.names, num_partitions=self.num_targets)
            yield from _sent(pa.RecordBatch.from_arrays([*alike.columns, numbers], schema=self.schema), targets)


def _sent(batch: pa.RecordBatch, targets: np.ndarray) -> Iterator[tuple[int, pa.RecordBatch]]:
    for target in np.unique(targets).tolist():
        yield target, batch.take(pa.array(np.flatnonzero(targets == target)))


# -- back into the order of rows


@dataclass(frozen=True)
class _Order:
    """By the numbers of `first`, which are below `num_first`, then by those of `second`.

    Rows without a first number, of which there are at most `num_alone`, come after all others, by their second.
    """

    first: str
    second: str
    num_first: int
    num_alone: int

    def positions(self, batch: pa.RecordBatch) -> tuple[np.ndarray, np.ndarray]:
        """What to sort by: two whole numbers for each row."""
        second = pc.fill_null(batch.column(self.second), 0).to_numpy(zero_copy_only=False)
        first = batch.column(self.first)
        alone = pa.array(self.num_first + second)
        return pc.coalesce(first, alone).to_numpy(zero_copy_only=False), second


@dataclass(frozen=True)
class _OrderSplit:
    """Sends a row to the range that its position is in."""

    order: _Order
    num_targets: int

    def __call__(self, index: int, batches: Stream) -> Iterator[tuple[int, pa.RecordBatch]]:
        total = max(1, self.order.num_first + self.order.num_alone)
        for batch in batches:
            first, second = self.order.positions(batch)
            names = [name for name in batch.schema.names if name not in (LEFT, RIGHT)]
            columns = [*(batch.column(name) for name in names), pa.array(first), pa.array(second)]
            made = pa.RecordBatch.from_arrays(columns, names=[*names, _FIRST, _SECOND])
            yield from _sent(made, first * self.num_targets // total)


# -- aggregates of pieces


@dataclass(frozen=True)
class _Partial:
    """Aggregates of some rows at a time: several rows for a key."""

    aggregates: tuple[Aggregate, ...]
    keys: tuple[str, ...]
    schema: pa.Schema

    def __call__(self, index: int, batches: Stream) -> Stream:
        held: list[pa.RecordBatch] = []
        num_bytes = 0
        for batch in batches:
            held.append(conform(batch, self.schema, where="between partitions"))
            num_bytes += batch.nbytes
            if num_bytes >= _PARTITION_BYTES:
                yield from self._aggregated(held)
                held, num_bytes = [], 0
        if held:
            yield from self._aggregated(held)

    def _aggregated(self, held: list[pa.RecordBatch]) -> Stream:
        table = pa.Table.from_batches(held, self.schema)
        return iter(aggregate_table(table, self.aggregates, keys=self.keys).to_batches())


# -- by ranges of a key


@dataclass(frozen=True)
class _Sample:
    """Some values of a column, in even steps."""

    key: str

    def __call__(self, index: int, batches: Stream) -> Stream:
        for batch in batches:
            step = max(1, batch.num_rows // _SAMPLES)
            values = batch.column(self.key).take(pa.array(np.arange(0, batch.num_rows, step)))
            yield pa.record_batch({self.key: values.drop_null()})


def _bounds(samples: Sequence[Part], num_targets: int) -> pa.Array:
    """Values that divide a column into ranges with about as many rows: one less than there are ranges, or fewer."""
    pl = load_polars()
    batches = [batch for part in samples for batch in part.batches()]
    found = pl.concat([pl.Series(batch.column(0)) for batch in batches]) if batches else pl.Series([], dtype=pl.Int64)
    values = _comparable(found).drop_nulls().unique().sort()
    at = np.unique(np.linspace(0, len(values), num_targets + 1).astype(int)[1:-1])
    return values.gather([one for one in at.tolist() if one < len(values)]).to_arrow()


@dataclass(frozen=True)
class _RangeSplit:
    """Sends a row to the range that its value is in; missing values and NaN to the last."""

    key: str
    bounds: pa.Array
    num_targets: int
    descending: bool

    def __call__(self, index: int, batches: Stream) -> Iterator[tuple[int, pa.RecordBatch]]:
        pl = load_polars()
        bounds = pl.Series(self.bounds)
        for batch in batches:
            values = _comparable(pl.Series(batch.column(self.key)))
            is_last = values.is_null()
            if values.dtype.is_float():
                is_last = is_last | values.is_nan().fill_null(False)
            filled = values.fill_null(bounds[0]) if len(bounds) else values
            targets = (
                bounds.search_sorted(filled, side="right").to_numpy().astype(np.int64)
                if len(bounds)
                else np.zeros(batch.num_rows, np.int64)
            )
            if self.descending:
                targets = len(bounds) - targets
            yield from _sent(batch, np.where(is_last.to_numpy(), self.num_targets - 1, targets))


def _comparable(values: Any) -> Any:
    """Booleans as numbers, which can be searched; categories as their texts."""
    pl = load_polars()
    if values.dtype == pl.Boolean:
        return values.cast(pl.UInt8)
    return values.cast(pl.String) if values.dtype in (pl.Categorical, pl.Enum) else values
