"""Lowering: the relational part of a plan as one query of Polars, which its streaming engine runs.

`Lowering.frame` follows a plan down through the nodes that say what they are in Polars (`PlanNode.lowered`): scans,
chosen and computed columns, filters, joins, aggregates, sorts, unions. What is not relational (functions, generated
rows, models) is computed first, as everywhere, and scanned where it lies. Rows come back as Arrow batches in an order
that the nodes define, whatever the number of threads; beyond the executor's limit Polars spills, and so do the results.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from trek.data.execution.base import Executor
from trek.data.execution.fresh_process import fresh_executor
from trek.data.execution.parts import Part, Readable
from trek.data.execution.polars_engine import is_usable, load_polars, polars_errors, set_budget
from trek.data.plans.conforming import conform
from trek.data.plans.plan import PlanNode, Stream, sources
from trek.data.plans.polars_types import Carrier, batches_to_polars, empty_frame, to_arrow
from trek.data.plans.schemas import schema_of
from trek.errors import TrekError

if TYPE_CHECKING:
    import polars as pl

_CHUNK_ROWS, _CHUNK_BYTES = 1 << 16, 1 << 24
_COUNT = "rows"


class Lowering:
    """One plan on its way to Polars: the executor for what must be computed first, and the columns that are carried."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self.carrier = Carrier()
        self._frames: dict[PlanNode, pl.LazyFrame] = {}

    def frame(self, node: PlanNode) -> pl.LazyFrame:
        """The rows of `node`, in order; a node that is read twice is computed once."""
        if node not in self._frames:
            lowered = node.lowered(self)
            self._frames[node] = self.scanned(node) if lowered is None else lowered
        return self._frames[node]

    def scanned(self, node: PlanNode) -> pl.LazyFrame:
        """The rows of `node`, computed now."""
        streams = self.executor.collect(node.pieces(self.executor))
        return self.held([batch for stream in streams for batch in stream], schema_of(node))

    def held(self, batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pl.LazyFrame:
        """Rows that are in memory, or mapped."""
        alike = [conform(batch, schema, where="between partitions") for batch in batches]
        return batches_to_polars(alike, schema, self.carrier).lazy()

    def conformed(self, node: PlanNode, schema: pa.Schema) -> pl.LazyFrame:
        """The rows of `node` with the types of `schema`, which has the same columns or fewer."""
        frame, before = self.frame(node), schema_of(node)
        kinds = empty_frame(schema).schema
        casts = [name for name in schema.names if before.field(name).type != schema.field(name).type]
        return frame.with_columns([load_polars().col(name).cast(kinds[name]) for name in casts]) if casts else frame


@dataclass(frozen=True)
class Query:
    """What Polars is to compute; picklable, since a process that cannot call Polars sends it to one that can."""

    frame: Callable[[Lowering], pl.LazyFrame]
    schema: pa.Schema
    title: str
    source: PlanNode
    """The plan whose stored rows are read."""
    is_cut: bool = True
    """Whether batches have a number of rows that depends on the columns alone, so that functions see the same batches
    with any number of threads. Otherwise they come as Polars made them, which saves a copy."""


def query_of(node: PlanNode, *, is_cut: bool = True) -> Query:
    """All rows of a relational node."""
    return Query(_Whole(node), schema_of(node), node.describe(), node, is_cut=is_cut)


def run_query(query: Query, executor: Executor) -> Part:
    """The rows of a query, kept by the executor."""
    if not is_usable():
        (part,) = fresh_executor().map(_FreshTask(query), [Part(())])
        return part
    return executor.keep(streamed(query, executor))


def streamed(query: Query, executor: Executor) -> Stream:
    """The rows of a query while it runs; it waits for its reader, and ends with it."""
    lowering, schema = Lowering(executor), query.schema
    frame = query.frame(lowering).select(schema.names)
    set_budget(executor.memory_limit_bytes, executor.spill_dir)
    chunk_rows = _chunk_rows(schema) if query.is_cut else None
    try:
        with polars_errors(query.title, reads=_reads(query.source)):
            for chunk in frame.collect_batches(chunk_size=chunk_rows, engine="streaming"):
                yield from to_arrow(chunk.rechunk() if query.is_cut else chunk, schema, lowering.carrier)
    except TrekError:
        query.source.require_unchanged()
        raise
    query.source.require_unchanged()


def read_rows(node: PlanNode, executor: Executor, *, ahead: int | None = None) -> Stream:
    """All rows of `node`, in order, computed while they are read where possible; see `Executor.read` for `ahead`."""
    if _is_one_query(node, executor) and is_usable():
        return streamed(query_of(node), executor)
    is_here = not node.calls_functions or any(source.is_here_alone for source in sources(node))
    streams = read_here(node, executor) if is_here else executor.read(node.pieces(executor), ahead=ahead)
    return (batch for stream in streams for batch in stream)


def read_here(node: PlanNode, executor: Executor) -> Iterator[Stream]:
    """The rows of every partition, computed by this process while they are read."""
    return (piece.batches() for piece in node.pieces(executor))


def count_rows(node: PlanNode, executor: Executor) -> int:
    """How many rows `node` has; those of a query are counted by Polars."""
    is_one = _is_one_query(node, executor)
    pieces = [run_query(_counting(node), executor)] if is_one else executor.map(_count, node.pieces(executor))
    return sum(batch.column(0)[0].as_py() for piece in pieces for batch in piece.batches())


def evaluate(node: PlanNode, executor: Executor) -> list[Part]:
    """Every partition of `node`, computed; those that are computed already are taken as they are."""
    return executor.compute(pieces_of(node, executor))


def collect(node: PlanNode, executor: Executor) -> Iterator[Stream]:
    """The rows of every partition of `node`, computed by the executor, in this process; to be read in order."""
    return executor.collect(pieces_of(node, executor))


def collect_whole(node: PlanNode, executor: Executor) -> Iterator[Stream]:
    """All rows of `node`, in order; in one query where possible, so the partitions may be others than its own."""
    if not node.is_relational or executor.divides_relations:
        return collect(node, executor)
    return iter([run_query(query_of(node, is_cut=False), executor).batches()])


def _is_one_query(node: PlanNode, executor: Executor) -> bool:
    return node.is_query and not executor.divides_relations


def pieces_of(node: PlanNode, executor: Executor) -> list[Readable]:
    """Every partition of `node`, to be computed when read: by a query each, where that is possible."""
    return lowered_pieces(node, executor) or node.pieces(executor)


def lowered_pieces(node: PlanNode, executor: Executor) -> list[Readable] | None:
    """The partitions of `node`, each a query of its own, if they are; None otherwise."""
    singles = [node.single(index) for index in range(node.num_partitions)]
    if not singles or None in singles:
        return None
    return [LoweredPiece(single, executor.memory_limit_bytes) for single in singles if single is not None]


@dataclass(frozen=True)
class LoweredPiece:
    """One partition of a relational plan, queried where and when it is read."""

    node: PlanNode
    memory_limit_bytes: int

    def batches(self) -> Stream:
        """The rows, in order."""
        from trek.data.execution.threads import ThreadExecutor

        executor = ThreadExecutor(memory_limit_bytes=self.memory_limit_bytes)
        query = query_of(self.node)
        return streamed(query, executor) if is_usable() else run_query(query, executor).batches()


@dataclass(frozen=True)
class _Whole:
    node: PlanNode

    def __call__(self, lowering: Lowering) -> pl.LazyFrame:
        return lowering.frame(self.node)


def _reads(node: PlanNode) -> str:
    stored = [source.describe() for source in sources(node) if source.is_fixed and source is not node]
    return ", ".join(dict.fromkeys(stored))


def _counting(node: PlanNode) -> Query:
    schema = pa.schema([(_COUNT, pa.int64())])
    return Query(_Counted(node), schema, node.describe(), node)


@dataclass(frozen=True)
class _Counted:
    node: PlanNode

    def __call__(self, lowering: Lowering) -> pl.LazyFrame:
        return lowering.frame(self.node).select(load_polars().len().cast(load_polars().Int64).alias(_COUNT))


def _count(index: int, batches: Stream) -> Stream:
    yield pa.record_batch({_COUNT: [sum(batch.num_rows for batch in batches)]})


@dataclass(frozen=True)
class _FreshTask:
    """A query for a fresh process."""

    query: Query

    def __call__(self, index: int, batches: Stream) -> Iterator[pa.RecordBatch]:
        from trek.data.execution import current_executor

        return streamed(self.query, current_executor())


def _chunk_rows(schema: pa.Schema) -> int:
    """Rows in a batch: by the columns alone, so that functions see the same batches whatever the number of threads."""
    return max(1, min(_CHUNK_ROWS, _CHUNK_BYTES // max(1, sum(_width(field.type) for field in schema))))


def _width(kind: pa.DataType) -> int:
    """Bytes of one value, roughly."""
    if isinstance(kind, pa.FixedShapeTensorType):
        return _width(kind.value_type) * int(math.prod(kind.shape))
    try:
        return max(1, int(kind.bit_width) // 8)
    except ValueError:  # of a type whose values differ in width
        return 32
