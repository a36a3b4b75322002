"""Plans: what a Table is to compute, as a tree of nodes, and how the tree becomes partitions that can be read.

A chain of nodes that need no other partition's rows is fused: each partition is one stream of batches through all of
them. A node that does need them (an exchange) runs at once on the Executor, and the next chain starts at its Parts.
The nodes themselves live beside their subject: `trek.data.sources`, and `steps` and `exchanges` next to this file.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from trek.data.execution.base import Executor
from trek.data.execution.parallel import worker_id
from trek.data.execution.parts import Readable
from trek.fingerprints import Fingerprint, fingerprint_value

if TYPE_CHECKING:
    import polars as pl

    from trek.data.plans.lowering import Lowering

Stream = Iterator[pa.RecordBatch]


class PlanNode(ABC):
    """One operation and the nodes it reads from."""

    inputs: tuple[PlanNode, ...] = ()
    is_fixed = False
    """Whether rows come from stored files and through no function, so that kept ones serve as well as computed ones."""
    is_relational = False
    """Whether it is an operation that Polars runs, so that `lowered` gives a query."""
    is_query = False
    """Whether reading any of its rows takes a query of Polars over all of them, such as a sort."""
    derives_schema = False
    """Whether the columns follow from those of the inputs, so that nothing need be computed once those are known."""
    _learnt_schema: pa.Schema | None = None

    @property
    @abstractmethod
    def num_partitions(self) -> int:
        """How many partitions come out."""

    @abstractmethod
    def describe(self) -> str:
        """One line for `explain`."""

    @abstractmethod
    def identity(self) -> Any:
        """What distinguishes this node's result from another's: hashed, with the inputs', into the fingerprint."""

    @abstractmethod
    def pieces(self, executor: Executor) -> list[Readable]:
        """The partitions, to be computed when read."""

    def in_any_order(self) -> PlanNode:
        """The same rows for whoever does not mind their order, if another one takes less time to compute."""
        return self

    @property
    def calls_functions(self) -> bool:
        """Whether functions run while a partition is read, which workers may do instead of the reader."""
        return False

    @property
    def num_rows(self) -> int | None:
        """Rows in all partitions, where that is known without computing."""
        return None

    @property
    def schema(self) -> pa.Schema | None:
        """The columns, where they are known without computing."""
        return self._learnt_schema

    def learn_schema(self, schema: pa.Schema) -> None:
        """Remember columns that were found by computing."""
        self._learnt_schema = schema

    def forget_schema(self) -> None:
        """Undo `learn_schema`, for a copy whose inputs have other columns."""
        self._learnt_schema = None

    def schema_without_rows(self) -> pa.Schema | None:
        """The columns, found without a row of this node, where there is none; None if they cannot be known."""
        return None

    def filled(self, names: Iterable[str]) -> frozenset[str]:
        """Those of the columns `names` that are known to have no missing values."""
        return frozenset()

    def split(self, num_partitions: int) -> PlanNode | None:
        """The same rows in the same order in as many partitions, if that is possible without reading them."""
        return None

    def require_unchanged(self) -> None:
        """Raise DataUnavailable if stored rows that the plan reads are not those that were found when it was made."""
        for node in self.inputs:
            node.require_unchanged()

    def whole(self) -> pa.Table | None:
        """All rows as one table, if they are in memory, or mapped, as one already."""
        return None

    def narrowed(self, names: Sequence[str]) -> PlanNode | None:
        """The same rows with these columns alone, in this order, if leaving the others out saves work."""
        return None

    def lowered(self, lowering: Lowering) -> pl.LazyFrame | None:
        """The rows in order, as a query of Polars over `lowering.frame` of the inputs; None if not relational."""
        return None

    def single(self, index: int) -> PlanNode | None:
        """The plan of partition `index` alone, if it is relational down to a source that Polars can scan."""
        return None

    def fingerprint(self) -> str:
        """A hash of everything the result depends on: operations, functions, settings, the content of sources."""
        return self.take_fingerprint().digest

    def take_fingerprint(self) -> Fingerprint:
        """The same part by part."""
        return fingerprint_value(self, name=self.describe())

    def __trek_fingerprint__(self) -> Any:
        return (type(self).__name__, self.identity(), self.inputs)


class Source(PlanNode):
    """Where rows come from; partition i is read by `read(i)`.

    Contracts: reading a partition again gives the same rows, in batches with the columns of `schema`, or ends in the
    error of `require_unchanged`; different
    partitions may be read at the same time, by several threads or, unless `is_here_alone`, by other processes, to which
    the Source is pickled; `identity` is the same for the same content and settings, and another for others.
    """

    travels_once = True
    """An executor with processes sends it to each of them once, not with every partition: it may name many files."""
    is_here_alone = False
    """Whether the rows can be read in this process only."""

    @abstractmethod
    def read(self, index: int) -> Stream:
        """The rows of a partition, from the beginning."""

    def pieces(self, executor: Executor) -> list[Readable]:
        """The partitions, read when asked."""
        return [SourcePiece(self, index) for index in range(self.num_partitions)]

    def peeking(self) -> AbstractContextManager[None]:
        """A block in which reading has no lasting effect: for learning the columns of a stream."""
        return nullcontext()


@dataclass(frozen=True)
class SourcePiece:
    """One partition of a source."""

    source: Source
    index: int

    def batches(self) -> Stream:
        """The rows, in order."""
        return self.source.read(self.index)


@dataclass(frozen=True)
class Context:
    """What a function of `compute` knows of where it runs."""

    index: int
    parallelism: int
    name: str
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """Side inputs by name: columns as a dict of arrays."""

    @property
    def worker_id(self) -> int:
        """The worker that runs the calling function, from 0."""
        return worker_id()


class PartitionStep(PlanNode):
    """An operation on one partition's stream; `apply` must be a generator or return an iterator."""

    travels_once = False
    """Only without its inputs, which may be rows that no worker should remember; see `detached`."""
    is_by_row = False
    """Whether it makes no difference to the result where partitions begin and end."""

    def __init__(self, node: PlanNode) -> None:
        self.inputs = (node,)

    @property
    def num_partitions(self) -> int:
        """As many as the input has."""
        return self.inputs[0].num_partitions

    @property
    def calls_functions(self) -> bool:
        """Whether this step is one, or another that is fused with it."""
        return not self.is_relational or self.inputs[0].calls_functions

    def in_any_order(self) -> PlanNode:
        """Of the input's rows in any order, unless it is a function, which could tell."""
        if not (self.is_by_row and self.is_relational):
            return self
        step = copy.copy(self)
        step.inputs = (self.inputs[0].in_any_order(),)
        return step

    @abstractmethod
    def apply(self, batches: Stream, context: Context) -> Stream:
        """The rows that come out for those that go in."""

    def pieces(self, executor: Executor) -> list[Readable]:
        """The input's partitions, followed by this step."""
        pieces = self.inputs[0].pieces(executor)
        step = self.detached()
        side_inputs = self.side_inputs(executor)
        return [
            StepPiece(piece, step, Context(index, len(pieces), self.describe(), inputs=side_inputs))
            for index, piece in enumerate(pieces)
        ]

    def split(self, num_partitions: int) -> PlanNode | None:
        """The same step on the input in other partitions."""
        split = self.inputs[0].split(num_partitions) if self.is_by_row else None
        if split is None:
            return None
        step = copy.copy(self)
        step.inputs = (split,)
        return step

    def side_inputs(self, executor: Executor) -> Mapping[str, Any]:
        """Values computed beforehand for `Context.inputs`."""
        return {}

    def detached(self) -> PartitionStep:
        """This step without its inputs: a worker gets it once, with what its function holds, and not the whole plan."""
        step = copy.copy(self)
        step.inputs = ()
        step.travels_once = True
        return step


@dataclass(frozen=True)
class StepPiece:
    """A partition followed by one more step."""

    origin: Readable
    step: PartitionStep
    context: Context

    def batches(self) -> Stream:
        """The rows that come out of the step."""
        return self.step.apply(self.origin.batches(), self.context)


def sources(node: PlanNode) -> Iterator[Source]:
    """Every source a plan reads from."""
    if isinstance(node, Source):
        yield node
    for child in node.inputs:
        yield from sources(child)


def explain(node: PlanNode, *, depth: int = 0) -> str:
    """The tree of a plan, sources last, one line for each node."""
    rows = "" if node.num_rows is None else f", {node.num_rows:,} rows"
    noun = "partition" if node.num_partitions == 1 else "partitions"
    line = f"{'  ' * depth}{node.describe()}  [{node.num_partitions} {noun}{rows}]"
    return "\n".join([line, *(explain(child, depth=depth + 1) for child in node.inputs)])
