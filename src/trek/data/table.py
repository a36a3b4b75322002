"""Table: a partitioned, lazily computed collection of Arrow record batches.

Operations build a plan and return at once; an action (`to_numpy`, `persist`, `batches`, iteration …) runs it on the
current Executor, see `trek.data.execution.running_on`. Functions see whole batches as dicts of NumPy arrays, and must
not write to them in place. The work itself is in `steps`, `exchanges`, `persist` and `batches`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from trek.data import tensors
from trek.data.arguments import positive, require_callable, require_table
from trek.data.column_types import common_schema, empty_table
from trek.data.execution import EXECUTORS, current_executor
from trek.data.plans import steps
from trek.data.plans.aggregates import AggregateSpec, parse_aggregates
from trek.data.plans.compute import Compute
from trek.data.plans.conforming import alike, is_settled
from trek.data.plans.exchanges import Cache, Gather, KeyPartition, Repartition, Replicate, reads_stream
from trek.data.plans.expressions import Expression
from trek.data.plans.joins import How, joined_names, require_join
from trek.data.plans.keyed import CombineArrays, Reduce
from trek.data.plans.keys import require_keys
from trek.data.plans.lowering import collect_whole, count_rows, evaluate, read_rows
from trek.data.plans.plan import Context, PlanNode, explain
from trek.data.plans.relations import Aggregation, Distinct, Join, KeyedGather, Sort, Union
from trek.data.plans.schemas import schema_of
from trek.data.sources.memory import MemorySource, table_from
from trek.errors import InputError
from trek.fingerprints import source_name
from trek.system.urls import is_remote

if TYPE_CHECKING:
    from datetime import timedelta

    import numpy as np
    import pandas as pd
    import torch
    from ray.data import Dataset

    from trek.data.batching.batches import Batches
    from trek.data.batching.order import Tail
    from trek.data.plans.windows import Windows
    from trek.data.storing.persisted import Storage
    from trek.data.storing.sharing import Handle
    from trek.world import World


class Table:
    """Rows with named, typed columns. Make one with `trek.data.open` or `Table.of`."""

    def __init__(self, node: PlanNode) -> None:
        self._node = node
        self._schema: pa.Schema | None = None

    @classmethod
    def of(cls, data: Any, *, num_partitions: int = 1) -> Table:
        """Rows from memory: a dict of columns, a list of dicts, a pandas frame or an Arrow table. Nothing is copied."""
        return cls(MemorySource(table_from(data), num_partitions=positive(num_partitions, "num_partitions")))

    @classmethod
    def generate(cls, function: Callable[[Context], Any], *, num_partitions: int = 1, rows: bool = False) -> Table:
        """Rows a function makes: called for each partition with its context, it yields batches (dicts of arrays).

        With `rows=True` it yields rows as dicts. It may also give an object with `has_next()` and `next()`.
        """
        from trek.data.sources.generated import GeneratedSource

        require_callable(function, "generate")
        return cls(GeneratedSource(function, num_partitions=positive(num_partitions, "num_partitions"), rows=rows))

    @classmethod
    def stream(cls, batches: Iterable[Any], *, rows: bool = False) -> Table:
        """Batches (dicts of arrays), or with `rows=True` rows, as they come from an iterable; it can be read once."""
        from trek.data.sources.generated import StreamSource

        return cls(StreamSource(batches, rows=rows))

    # -- operations: lazy ------------------------------------------------------------------------------------------

    def map(self, function: Callable[[Any], Any], *, rows: bool = False, arrow: bool = False) -> Table:
        """New columns: `function` takes a batch as a dict of arrays and returns one.

        With `rows=True` it takes and returns one row as a dict, with `arrow=True` a record batch.
        """
        if rows and arrow:
            raise InputError("rows=True and arrow=True exclude each other: a function sees either rows or batches.")
        require_callable(function, "map")
        return Table(steps.Map(self._node, function, format="rows" if rows else "arrow" if arrow else "numpy"))

    def flat_map(self, function: Callable[[dict[str, Any]], Any]) -> Table:
        """Any number of rows for each row: `function` takes a row as a dict and returns a list of rows."""
        require_callable(function, "flat_map")
        return Table(steps.FlatMap(self._node, function))

    def filter(self, condition: Expression | Callable[[dict[str, np.ndarray]], Any]) -> Table:
        """Rows for which `trek.col("label") < 10`, or a function over a batch, is true."""
        if isinstance(condition, Expression):
            self._require_columns(sorted(condition.columns))
        else:
            require_callable(condition, "filter")
        return Table(steps.Filter(self._node, condition))

    def compute(self, function: Callable[..., Any], **side_inputs: Table) -> Table:
        """A function over whole partitions: `function(batches, context)` yields batches.

        Or `function(batches, collector, context)`, which passes them to `collector.collect(batch)` instead.
        `context` has index, parallelism, name and worker_id; `context.inputs[name]` holds a side input's columns.
        """
        require_callable(function, "compute")
        return Table(Compute(self._node, function, side_nodes={k: v._node for k, v in side_inputs.items()}))

    def select(self, *names: str) -> Table:
        """These columns, in this order."""
        self._require_columns(names)
        if not names or len(set(names)) < len(names):
            raise InputError(f"select() needs one or more columns, each once, got {list(names)}.")
        return Table(steps.Project(self._node, {name: name for name in names}, verb="select"))

    def drop(self, *names: str) -> Table:
        """All columns but these."""
        self._require_columns(names)
        return self.select(*(name for name in self.columns if name not in names))

    def rename(self, names: Mapping[str, str]) -> Table:
        """Columns under new names: `{"old": "new"}`."""
        self._require_columns(list(names))
        new = [names.get(name, name) for name in self.columns]
        if len(set(new)) < len(new):
            raise InputError(f"renaming {dict(names)} would give two columns the same name: {new}.")
        return Table(steps.Project(self._node, dict(zip(new, self.columns, strict=True)), verb="rename to"))

    def with_columns(self, **columns: Expression) -> Table:
        """Columns added or replaced by computed ones: `with_columns(area=trek.col("w") * trek.col("h"))`."""
        for name, expression in columns.items():
            if not isinstance(expression, Expression):
                raise InputError(f"with_columns({name}=…) needs an expression of trek.col(…), got {expression!r}.")
            self._require_columns(sorted(expression.columns))
        old: dict[str, str | Expression] = {name: name for name in self.columns}
        new = {n: e.arguments[0] if e.function == "column" else e for n, e in columns.items()}  # a copy keeps its type
        return Table(steps.Project(self._node, {**old, **new}, verb="compute"))

    def add_input(self, name: str, other: Table) -> Table:
        """Give the function of a `compute` one more side input, as `context.inputs[name]`."""
        if not isinstance(self._node, Compute):
            raise InputError(f"add_input() must follow compute(), but follows: {self._node.describe()}.")
        return Table(self._node.with_side_input(name, other._node))

    def require_finite(self, *names: str) -> Table:
        """The same rows, and an error that names column and rows where a number is missing, NaN or infinite."""
        self._require_columns(names)
        return Table(steps.RequireFinite(self._node, names or self.columns))

    def partition(self, num_partitions: int, *, by: str | Sequence[str] = ()) -> Table:
        """The same rows in `num_partitions` equal partitions, in the same order; or with `by`, equal keys together."""
        positive(num_partitions, "num_partitions")
        keys = self._require_keys(by)
        return Table(
            KeyPartition(self._node, num_partitions, keys=keys) if keys else Repartition(self._node, num_partitions)
        )

    def replicate(self, num_partitions: int) -> Table:
        """`num_partitions` partitions, each of which holds all rows."""
        return Table(Replicate(self._node, positive(num_partitions, "num_partitions")))

    def gather(self, *, by: str | Sequence[str] = ()) -> Table:
        """All rows in one partition, in order; or with `by`, one row for each key and lists of the other columns."""
        keys = self._require_keys(by)
        return Table(KeyedGather(self._node, keys=keys) if keys else Gather(self._node))

    def all_gather(self) -> Table:
        """All rows in each of the partitions there are."""
        return self.replicate(self.num_partitions)

    def reduce(
        self, how: AggregateSpec | Callable[..., Any], *, by: str | Sequence[str] = (), rows: bool = False
    ) -> Table:
        """One row in all, or one for each key.

        `how` is aggregates, `{"x": "sum", "n": ("*", "count")}`, or a function from a dict of arrays to one of a
        single row; with `rows=True` from two rows to one. Without keys it is applied to its own results, so it must be
        associative and return the columns it takes. Keys precede the columns it returns, unless they are among them.
        No rows reduce to no row. Rows come in the order of their keys, missing ones last.
        """
        keys = self._require_keys(by)
        if callable(how):
            return Table(Reduce(self._node, CombineArrays(how, tuple(keys), rows), keys=keys))
        aggregates = parse_aggregates(how, self.schema, keys=keys)
        needed = dict.fromkeys([*keys, *(a.column for a in aggregates if a.column != "*")])
        table = self.select(*needed) if needed else self
        return Table(Aggregation(table._node, aggregates, keys=keys))

    def all_reduce(self, how: AggregateSpec | Callable[..., Any], *, rows: bool = False) -> Table:
        """The row of `reduce` in each of the partitions there are."""
        return self.reduce(how, rows=rows).replicate(self.num_partitions)

    def join(self, other: Table, *, on: str | Sequence[str], how: How = "inner", suffix: str = "_right") -> Table:
        """Rows of both tables side by side where the columns `on` are equal; a missing key equals nothing.

        Columns of `other` whose names are taken get `suffix`. Rows come in the order of this table, and for each in the
        order of `other`; a right join the other way round; an outer join has what only `other` has at its end.
        """
        require_table(other, "join")
        keys = [on] if isinstance(on, str) else list(on)
        require_join(self.schema, other.schema, keys, how)
        require_keys(self.schema, keys)
        joined_names(self.columns, other.columns, keys, suffix=suffix)
        return Table(Join(self._node, other._node, on=keys, how=how, suffix=suffix))

    def distinct(self, *by: str) -> Table:
        """The first row of each combination of values in the columns `by`, or in all columns, in the order of rows."""
        return Table(Distinct(self._node, by=self._require_keys(by or self.columns)))

    def sort(self, *by: str, descending: bool = False) -> Table:
        """Rows in the order of these columns; equal ones stay in their order, missing values come last."""
        if not by:
            raise InputError("sort() needs at least one column.")
        return Table(Sort(self._node, by=self._require_keys(by), descending=descending))

    def window(
        self,
        size: float | timedelta,
        *,
        step: float | timedelta | None = None,
        by: str | None = None,
        tail: Literal["keep", "drop"] = "keep",
    ) -> Windows:
        """Windows of `size` rows, or of a span of the time column `by`; sliding when `step` is given.

        Windows run over each partition's rows in order, and over streams that never end; `partition(1)` first for
        windows over all rows. `tail="drop"` leaves out windows that the end of the rows cut short.
        """
        from trek.data.plans.windows import Windows, make_windowing

        windowing = make_windowing(self.schema, size, step=step, by=by, tail=tail)
        return Windows(self._node, windowing)

    def cache(self, *, lazy: bool = False) -> Table:
        """Rows computed once and kept in memory: now, or `lazy` with their first use."""
        node = Cache(self._node)
        if not lazy:
            node.pieces(current_executor())
        return Table(node)

    def union(self, *others: Table) -> Table:
        """The rows of this table, then those of the others; columns must have equal names, and types that agree."""
        for other in others:
            require_table(other, "union")
        common_schema([self.schema, *(other.schema for other in others)], verb="a union")
        return Table(Union([self._node, *(other._node for other in others)]))

    # -- properties -----------------------------------------------------------------------------------------------

    @property
    def num_partitions(self) -> int:
        """How many partitions there are."""
        return self._node.num_partitions

    @property
    def num_rows(self) -> int:
        """How many rows there are; computed where it is not known."""
        known = self._node.num_rows
        if known is not None:
            self._node.require_unchanged()  # files may have been counted long ago
            return known
        if reads_stream(self._node):
            raise InputError("a stream must be read to count its rows, and can be read only once. cache() it first.")
        schema = self._schema or self._node.schema  # without one, rows are counted as they are
        narrow = self._node.narrowed(schema.names[:1]) if schema is not None else None
        return count_rows(narrow or self._node, current_executor())

    def __len__(self) -> int:
        return self.num_rows

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the columns; after a function they are found by running it on the first batch."""
        if self._schema is None:
            self._schema = schema_of(self._node)
        return self._schema

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return list(self.schema.names)

    def explain(self) -> str:
        """The plan as text: what is computed from what, sources last."""
        return explain(self._node)

    def fingerprint(self) -> str:
        """A hash of everything the rows depend on."""
        return self._node.fingerprint()

    def __trek_fingerprint__(self) -> Any:
        return self._node

    def __repr__(self) -> str:
        columns = ", ".join(f"{field.name}: {tensors.type_name(field.type)}" for field in self.schema)
        return f"Table({columns})"

    # -- actions ---------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Record batches in order, computed as they are asked for."""
        yield from read_rows(self._node, current_executor())

    def to_arrow(self) -> pa.Table:
        """All rows as one Arrow table."""
        whole = self._node.whole()
        if whole is not None:
            return whole
        batches = [batch for stream in collect_whole(self._node, current_executor()) for batch in stream]
        if not batches:
            return empty_table(self.schema)
        return pa.Table.from_batches(alike(batches, where="between partitions"))

    def to_numpy(self) -> dict[str, np.ndarray]:
        """All rows as arrays, by column; over the same memory where the layout allows."""
        table = self.to_arrow()
        return {name: tensors.to_numpy(table.column(name)) for name in table.column_names}

    def to_torch(self) -> dict[str, torch.Tensor]:
        """All rows as tensors, by column; over the same memory where the layout allows, so do not write to them."""
        table = self.to_arrow()
        return {name: tensors.to_torch(table.column(name), name=name) for name in table.column_names}

    def to_pandas(self) -> pd.DataFrame:
        """All rows as a pandas frame; a tensor is a cell that holds an array."""
        import pandas as pd

        frame = {
            name: list(array) if array.ndim > 1 else array
            for name, array in ((n, tensors.to_numpy(c)) for n, c in zip(*_columns(self.to_arrow()), strict=True))
        }
        return pd.DataFrame(frame)

    def head(self, num_rows: int = 5) -> Table:
        """The first rows, computed now."""
        if not hasattr(num_rows, "__index__") or num_rows < 0:
            raise InputError(f"num_rows must be a whole number of at least 0, got {num_rows!r}.")
        held: list[pa.RecordBatch] = []
        missing = num_rows
        for batch in read_rows(self._node, current_executor(), ahead=1):
            held.append(batch.slice(0, missing))
            missing -= held[-1].num_rows
            if missing <= 0:
                self._node.require_unchanged()  # files are not read to their end
                break
        return Table(MemorySource(pa.Table.from_batches(held) if held else empty_table(self.schema), title="head"))

    def show(self, num_rows: int = 5) -> None:
        """Print the first rows."""
        from trek.data.inspect import render_rows

        print(render_rows(self.head(num_rows).to_arrow()))

    def describe(self) -> pd.DataFrame:
        """For each column its type, how many values, how many missing, distinct texts, min, max, mean, std."""
        from trek.data.inspect import describe_batches

        batches = iter(self)
        first = next(batches, None)
        schema = self.schema if first is None or not is_settled(first.schema) else first.schema
        return describe_batches(schema, batches if first is None else chain([first], batches))

    def for_each(self, function: Callable[[dict[str, np.ndarray]], Any]) -> None:
        """Call `function` with every batch, in order, in this process; with a stream, until it ends."""
        require_callable(function, "for_each")
        for batch, where in steps.numbered(iter(self), Context(0, 1, "for_each")):
            steps.call(function, steps.arrays_of(batch), where=f"for_each {source_name(function)}, {where}")

    def sink(self, function: Callable[[Iterator[Any], Context], Any]) -> None:
        """Call `function(batches, context)` once for each partition, where the partition is, and wait for all."""
        require_callable(function, "sink")
        evaluate(self.compute(_Sink(function))._node, current_executor())

    def share(self) -> Handle:
        """The rows in shared memory, for any process of this machine to map; see `trek.data.storing.sharing.Handle`.

        On a Ray cluster they stay in its object store, for any process of the cluster to read.
        """
        return current_executor().share_rows(self._node)

    def to_ray_data(self) -> Dataset:
        """The rows as a dataset of Ray Data, computed now on a Ray cluster; `from_ray_data` is the way back."""
        EXECUTORS.load("ray")  # says what is missing where Ray is not installed
        from trek.data.storing.ray_data import to_ray_data

        return to_ray_data(self._node, current_executor())

    def predict(
        self,
        model: Any,
        *,
        columns: Sequence[str] | None = None,
        output: str = "prediction",
        batch_size: int = 1024,
        device: str = "cpu",
    ) -> Table:
        """Add a model's outputs for each row as columns: `output`, or the names in a dict that the model returns.

        `model` is a module or function that takes `columns` (all, unless named) as tensors, a function without
        arguments that makes one, or a checkpoint with `load_model()`, loaded for each partition. Works on streams; with
        `persist(path, resume=True)` after it, a crashed run continues with the partitions that are missing.
        """
        from trek.data.plans.predict import Predict

        self._require_columns(columns or [])
        names = list(columns) if columns else self.columns
        return Table(Predict(self._node, model, columns=names, output=output, batch_size=batch_size, device=device))

    def persist(
        self, path: str | Path, *, storage: Storage = "parquet", overwrite: bool = False, resume: bool = False
    ) -> Table:
        """Compute into a folder of shards, one for each partition, and read from there.

        When the folder holds the result of an equal plan, it is verified and used as it is. With `resume`, shards that
        an attempt finished before it failed or was killed are kept for the next one. `path` may be a URL that
        fsspec opens (`s3://…`): shards are computed here and uploaded, the manifest last.
        """
        from trek.data.storing.persist import persist
        from trek.data.storing.remote import persist_remotely

        executor = current_executor()
        if is_remote(str(path)):
            if resume:
                raise InputError("resume=True needs a folder of this machine: persist there, then to the URL.")
            source = persist_remotely(self._node, str(path), executor, storage=storage, overwrite=overwrite)
            return Table(source)
        target = Path(str(path).removeprefix("file://")).expanduser()
        return Table(persist(self._node, target, executor, storage=storage, overwrite=overwrite, resume=resume))

    def batches(
        self,
        global_batch_size: int,
        *,
        shuffle: bool = False,
        seed: int = 0,
        world: World | None = None,
        tail: Tail = "keep",
        columns: Sequence[str] | None = None,
        epoch: int = 0,
        prefetch: int = 0,
    ) -> Batches:
        """Batches of tensors for training, a tuple of the columns each; `world` shares out each global batch.

        Rows are named by global index: every rank has the same number of batches, no row comes twice, none is lost.
        `prefetch` batches are made ahead by a thread. See `Batches` for resuming, and for how long training waited.
        """
        from trek.data.batching.batches import Batches
        from trek.world import World

        return Batches(
            self,
            global_batch_size,
            shuffle=shuffle,
            seed=seed,
            world=world or World(),
            tail=tail,
            epoch=epoch,
            columns=columns,
            prefetch=prefetch,
        )

    def _require_keys(self, by: str | Sequence[str]) -> list[str]:
        keys = [by] if isinstance(by, str) else list(by)
        self._require_columns(keys)
        if keys:
            require_keys(self.schema, keys)
        return keys

    def _require_columns(self, names: Sequence[str]) -> None:
        missing = [name for name in names if name not in self.columns]
        if missing:
            raise InputError(f"column {missing[0]!r} does not exist. There are: {', '.join(self.columns)}.")


class _Sink:
    """Runs a function over a partition for its effect alone."""

    def __init__(self, function: Callable[[Iterator[Any], Context], Any]) -> None:
        self.function = function

    def __call__(self, batches: Iterator[Any], context: Context) -> None:
        self.function(batches, context)


def _columns(table: pa.Table) -> tuple[list[str], list[pa.ChunkedArray]]:
    return table.column_names, table.columns
