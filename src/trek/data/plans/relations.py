"""Nodes of relational algebra over all rows: sort, join, aggregates, distinct, lists by key, union. Polars runs them.

Each defines the order of its rows, which is the same in every process and with any number of threads:

- sort: by the columns; equal rows stay in the order they had.
- join: the rows of the left in their order, each with its matches in the order of the right. A right join has the rows
  of the right in their order, each with its matches in the order of the left; an outer join the rows of a left join,
  then those of the right that nothing matched, in their order.
- aggregates and lists by key: by the keys, ascending; NaN follows the numbers, missing keys come last.
- distinct: the first row of each kind, in the order of the rows.
- union: one table after the other.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from trek.data.column_types import common_schema
from trek.data.execution.base import Executor
from trek.data.execution.parts import Part, Readable
from trek.data.execution.polars_engine import load_polars
from trek.data.plans import divided
from trek.data.plans.aggregates import Aggregate, aggregate_frame, aggregate_schema, look_for_missing
from trek.data.plans.exchanges import Exchange, joined, spread_evenly
from trek.data.plans.joins import How, joined_names, joined_schema
from trek.data.plans.lowering import Lowering, query_of, run_query
from trek.data.plans.plan import Context, PartitionStep, PlanNode, Stream
from trek.data.plans.schemas import schema_of

if TYPE_CHECKING:
    import polars as pl


class Relation(Exchange):
    """An operation that Polars runs over all rows; the result is spread evenly over its partitions."""

    is_relational = True
    is_query = True

    @property
    def num_rows(self) -> int | None:
        """Known only by computing."""
        return None

    def run(self, executor: Executor) -> Sequence[Readable]:
        """Computed in one query, together with everything relational before it; or divided, where the executor asks."""
        parts = self.divided(executor) if executor.divides_relations else None
        rows = run_query(query_of(self), executor) if parts is None else joined(parts)
        return spread_evenly(rows, num_partitions=self._num_partitions)

    def divided(self, executor: Executor) -> list[Part] | None:
        """The rows, in order, computed by the executor's tasks; None if the relation cannot be divided."""
        return None

    @abstractmethod
    def lowered(self, lowering: Lowering) -> pl.LazyFrame:
        """The query."""


class Sort(Relation):
    """Rows in the order of columns; equal ones stay in the order they had, NaN and then missing values come last."""

    def __init__(self, node: PlanNode, *, by: Sequence[str], descending: bool) -> None:
        super().__init__(node, node.num_partitions)
        self.by = list(by)
        self.descending = descending

    @property
    def num_rows(self) -> int | None:
        """As many as before."""
        return self.inputs[0].num_rows

    def describe(self) -> str:
        """One line for `explain`."""
        return f"sort by {', '.join(self.by)}{' descending' if self.descending else ''}"

    def identity(self) -> Any:
        """What to sort by, and which way."""
        return (self.by, self.descending)

    def in_any_order(self) -> PlanNode:
        """Not sorted."""
        return self.inputs[0].in_any_order()

    def narrowed(self, names: Sequence[str]) -> PlanNode | None:
        """Columns that are neither sorted by nor used are not read."""
        from trek.data.plans.steps import Project

        schema = self.inputs[0].schema
        used = list(dict.fromkeys([*names, *self.by]))
        before = self.inputs[0].narrowed(used) if schema is not None and len(used) < len(schema) else None
        if before is None:
            return None
        narrow = Sort(before, by=self.by, descending=self.descending)
        return Project(narrow, {name: name for name in names}, verb="select")

    def lowered(self, lowering: Lowering) -> pl.LazyFrame:
        """Polars puts NaN first when it sorts descending; a key before each column of floats puts it last."""
        pl = load_polars()
        keys, ways = [], []
        schema = schema_of(self.inputs[0])
        for name in self.by:
            if self.descending and pa.types.is_floating(schema.field(name).type):
                keys.append(pl.col(name).is_nan())
                ways.append(False)
            keys.append(pl.col(name))
            ways.append(self.descending)
        frame = lowering.frame(self.inputs[0])
        return frame.sort(keys, descending=ways, nulls_last=True, maintain_order=True)

    def divided(self, executor: Executor) -> list[Part] | None:
        """Each range of the first column is sorted by itself."""
        return divided.by_ranges(self, executor, key=self.by[0], descending=self.descending)


class Aggregation(Relation):
    """One row for each key, or one row in all: aggregates of the columns."""

    def __init__(self, node: PlanNode, aggregates: Sequence[Aggregate], *, keys: Sequence[str]) -> None:
        super().__init__(node, node.num_partitions if keys else 1)
        self.aggregates = tuple(aggregates)
        self.keys = list(keys)

    @property
    def schema(self) -> pa.Schema | None:
        """Keys, then the aggregates."""
        before = self.inputs[0].schema
        return None if before is None else aggregate_schema(before, self.aggregates, keys=self.keys)

    def describe(self) -> str:
        """One line for `explain`."""
        asked = ", ".join(f"{a.function}({a.column})" for a in self.aggregates)
        return f"reduce {asked}" + (f" by {', '.join(self.keys)}" if self.keys else "")

    def identity(self) -> Any:
        """What is computed, and for which keys."""
        return (self.aggregates, self.keys, self._num_partitions)

    def lowered(self, lowering: Lowering) -> pl.LazyFrame:
        """A group-by; no rows reduce to no row."""
        schema = schema_of(self.inputs[0])
        filled = self.inputs[0].filled(look_for_missing(self.aggregates))
        frame = lowering.frame(self.inputs[0])
        return aggregate_frame(frame, schema, self.aggregates, keys=self.keys, filled=filled)

    def divided(self, executor: Executor) -> list[Part] | None:
        """A single row is not divided."""
        return divided.aggregated(self, executor) if self.keys else None


class KeyedGather(Relation):
    """One row for each key; every other column becomes a list of its values, in the order of the rows."""

    def __init__(self, node: PlanNode, *, keys: Sequence[str]) -> None:
        super().__init__(node, node.num_partitions)
        self.keys = list(keys)

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

    def lowered(self, lowering: Lowering) -> pl.LazyFrame:
        """A group-by into lists."""
        pl = load_polars()
        names = [name for name in schema_of(self.inputs[0]).names if name not in self.keys]
        grouped = lowering.frame(self.inputs[0]).group_by(self.keys).agg([pl.col(name).implode() for name in names])
        return grouped.sort(self.keys, nulls_last=True)

    def divided(self, executor: Executor) -> list[Part] | None:
        """Each range of the first key by itself."""
        return divided.by_ranges(self, executor, key=self.keys[0])


class Distinct(Relation):
    """The first row of each combination of values in some columns, in the order of the rows."""

    def __init__(self, node: PlanNode, *, by: Sequence[str]) -> None:
        super().__init__(node, node.num_partitions)
        self.by = list(by)

    def describe(self) -> str:
        """One line for `explain`."""
        return f"distinct by {', '.join(self.by)}"

    def identity(self) -> Any:
        """The columns."""
        return (self.by, self._num_partitions)

    def lowered(self, lowering: Lowering) -> pl.LazyFrame:
        """The first of each kind."""
        return lowering.frame(self.inputs[0]).unique(subset=self.by, keep="first", maintain_order=True)

    def divided(self, executor: Executor) -> list[Part] | None:
        """Equal rows together."""
        return divided.distinct(self, executor, by=self.by)


class Join(Relation):
    """Rows of two plans side by side where their keys are equal; a missing key equals nothing."""

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
        self.is_ordered = True
        """Whether the rows must be in the order of a join."""

    @property
    def schema(self) -> pa.Schema | None:
        """Keys, then the columns of the left, then those of the right."""
        left, right = self.inputs[0].schema, self.inputs[1].schema
        if left is None or right is None:
            return None
        whole = joined_schema(left, right, self.on, suffix=self.suffix)
        return whole if self.columns is None else pa.schema([whole.field(name) for name in self.columns])

    def describe(self) -> str:
        """One line for `explain`."""
        return f"{self.how} join on {', '.join(self.on)}"

    def identity(self) -> Any:
        """Keys, kind and names."""
        return (self.on, self.how, self.suffix, self._num_partitions, self.columns)

    def narrowed(self, names: Sequence[str]) -> PlanNode | None:
        """The join of these columns alone."""
        narrow = copy.copy(self)
        narrow.columns = list(names)
        narrow.forget_schema()
        return narrow

    def in_any_order(self) -> PlanNode:
        """In the order of partitions."""
        join = copy.copy(self)
        join.is_ordered = False
        return join

    def pieces(self, executor: Executor) -> list[Readable]:
        """Computed at once, or, where no order must be restored, when they are read."""
        if executor.divides_relations and not self.is_ordered:
            return list(divided.joined_in_any_order(self, executor))
        return super().pieces(executor)

    def lowered(self, lowering: Lowering) -> pl.LazyFrame:
        """A join that keeps the order of both sides."""
        left, right, keys = schema_of(self.inputs[0]), schema_of(self.inputs[1]), self.compared_keys
        names = joined_names(left.names, right.names, self.on, suffix=self.suffix)
        return lowering.conformed(self.inputs[0], keys).join(
            lowering.conformed(self.inputs[1], keys).rename(names),
            on=self.on,
            how="full" if self.how == "outer" else self.how,
            coalesce=True,
            maintain_order="right_left" if self.how == "right" else "left_right",
        )

    def divided(self, executor: Executor) -> list[Part] | None:
        """Equal keys of both sides together."""
        return divided.joined(self, executor)

    @property
    def compared_keys(self) -> pa.Schema:
        """The keys, with the types in which both sides are compared."""
        left, right = (schema_of(node) for node in self.inputs)
        whole = joined_schema(left, right, self.on, suffix=self.suffix)
        return pa.schema([whole.field(key) for key in self.on])


class Union(PlanNode):
    """The partitions of several plans, one after the other; columns must have the same names and types that agree."""

    is_relational = True
    derives_schema = True

    def __init__(self, nodes: Sequence[PlanNode]) -> None:
        self.inputs = tuple(nodes)

    @property
    def is_query(self) -> bool:  # type: ignore[override]
        """When all are."""
        return all(node.is_query for node in self.inputs)

    @property
    def is_fixed(self) -> bool:  # type: ignore[override]
        """When all are."""
        return all(node.is_fixed for node in self.inputs)

    @property
    def calls_functions(self) -> bool:
        """Whether those of an input do."""
        return any(node.calls_functions for node in self.inputs)

    @property
    def num_partitions(self) -> int:
        """All of them."""
        return sum(node.num_partitions for node in self.inputs)

    @property
    def num_rows(self) -> int | None:
        """The sum, when every part is known."""
        counts = [node.num_rows for node in self.inputs]
        return None if None in counts else sum(count for count in counts if count is not None)

    @property
    def schema(self) -> pa.Schema | None:
        """The columns of all inputs, with types that hold the values of all."""
        schemas = [node.schema for node in self.inputs]
        return None if None in schemas else common_schema([s for s in schemas if s is not None], verb="a union")

    def describe(self) -> str:
        """One line for `explain`."""
        return f"union of {len(self.inputs)}"

    def identity(self) -> Any:
        """Nothing beyond the inputs."""
        return ()

    def narrowed(self, names: Sequence[str]) -> PlanNode | None:
        """The union of these columns alone, where every input can leave the others out."""
        narrow = [node.narrowed(names) for node in self.inputs]
        return None if None in narrow else Union([node for node in narrow if node is not None])

    def pieces(self, executor: Executor) -> list[Readable]:
        """One after the other."""
        schema = schema_of(self)
        return [piece for node in self.inputs for piece in _conformed(node, schema).pieces(executor)]

    def single(self, index: int) -> PlanNode | None:
        """The partition of the input that has it."""
        schema = schema_of(self)
        for node in self.inputs:
            if index < node.num_partitions:
                return node.single(index) if schema_of(node).equals(schema) else None
            index -= node.num_partitions
        raise AssertionError(f"partition {index} does not exist")

    def lowered(self, lowering: Lowering) -> pl.LazyFrame | None:
        """The frames one after the other."""
        schema = schema_of(self)
        frames = [lowering.conformed(node, schema).select(schema.names) for node in self.inputs]
        united: pl.LazyFrame = load_polars().concat(frames, how="vertical")
        return united


class Conform(PartitionStep):
    """The same rows with the types of another schema that can hold them."""

    is_by_row = True

    def __init__(self, node: PlanNode, schema: pa.Schema) -> None:
        super().__init__(node)
        self._schema = schema

    @property
    def schema(self) -> pa.Schema:
        """The columns as they come out."""
        return self._schema

    def describe(self) -> str:
        """One line for `explain`."""
        return "convert"

    def identity(self) -> Any:
        """The types."""
        return str(self._schema)

    def apply(self, batches: Stream, context: Context) -> Stream:
        """The rows, converted."""
        for batch in batches:
            yield batch.cast(self._schema)


def _conformed(node: PlanNode, schema: pa.Schema) -> PlanNode:
    return node if schema_of(node).equals(schema) else Conform(node, schema)
