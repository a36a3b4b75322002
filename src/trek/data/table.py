"""Table: a partitioned, lazily computed collection of Arrow record batches.

Operations build a plan and return at once; an action (`to_numpy`, `persist`, `batches`, iteration …) runs it on the
current Executor, see `trek.data.execution.running_on`. Functions see whole batches as dicts of NumPy arrays, and must
not write to them in place. The work itself is in `steps`, `exchanges`, `persist` and `batches`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from trek.data import steps, tensors
from trek.data.exchanges import Repartition, pass_on
from trek.data.execution import current_executor
from trek.data.expressions import Expression
from trek.data.plan import Context, Node, Source, Union, count_rows, explain
from trek.data.sources.memory import MemorySource, table_from
from trek.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import torch

    from trek.data.batches import Batches
    from trek.data.order import Tail
    from trek.data.persist import Storage
    from trek.world import World


class Table:
    """Rows with named, typed columns. Make one with `trek.data.open` or `Table.of`."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._schema: pa.Schema | None = None

    @classmethod
    def of(cls, data: Any, *, num_partitions: int = 1) -> Table:
        """Rows from memory: a dict of columns, a list of dicts, a pandas frame or an Arrow table. Nothing is copied."""
        return cls(MemorySource(table_from(data), num_partitions=_positive(num_partitions, "num_partitions")))

    # -- operations: lazy ------------------------------------------------------------------------------------------

    def map(self, function: Callable[[Any], Any], *, rows: bool = False, arrow: bool = False) -> Table:
        """New columns for old: `function` gets a batch as a dict of arrays and gives one.

        With `rows=True` it gets and gives one row as a dict, with `arrow=True` a record batch.
        """
        if rows and arrow:
            raise InputError("rows=True and arrow=True exclude each other: a function sees either rows or batches.")
        return Table(steps.Map(self._node, function, format="rows" if rows else "arrow" if arrow else "numpy"))

    def flat_map(self, function: Callable[[dict[str, Any]], Any]) -> Table:
        """Any number of rows for each row: `function` gets a row as a dict and gives a list of such."""
        return Table(steps.FlatMap(self._node, function))

    def filter(self, condition: Expression | Callable[[dict[str, np.ndarray]], Any]) -> Table:
        """Rows for which `trek.col("label") < 10`, or a function over a batch, says true."""
        if isinstance(condition, Expression):
            self._require_columns(sorted(condition.columns))
        return Table(steps.Filter(self._node, condition))

    def compute(self, function: Callable[[Iterator[Any], Context], Any], **side_inputs: Table) -> Table:
        """A function over whole partitions: `function(batches, context)` yields batches.

        `context` has index, parallelism, name and worker_id; `context.inputs[name]` holds a side input's columns.
        """
        return Table(steps.Compute(self._node, function, side_nodes={k: v._node for k, v in side_inputs.items()}))

    def select(self, *names: str) -> Table:
        """These columns, in this order."""
        self._require_columns(names)
        return Table(steps.Project(self._node, {name: name for name in names}, verb="select"))

    def drop(self, *names: str) -> Table:
        """All columns but these."""
        self._require_columns(names)
        kept = [name for name in self.columns if name not in names]
        return Table(steps.Project(self._node, {name: name for name in kept}, verb="select"))

    def rename(self, names: Mapping[str, str]) -> Table:
        """Columns under new names: `{"old": "new"}`."""
        self._require_columns(list(names))
        new = [names.get(name, name) for name in self.columns]
        if len(set(new)) < len(new):
            raise InputError(f"renaming {dict(names)} would give two columns the same name: {new}.")
        return Table(steps.Project(self._node, dict(zip(new, self.columns, strict=True)), verb="rename to"))

    def with_columns(self, **columns: Expression) -> Table:
        """Columns added or replaced by what is computed: `with_columns(area=trek.col("w") * trek.col("h"))`."""
        for expression in columns.values():
            self._require_columns(sorted(expression.columns))
        old: dict[str, str | Expression] = {name: name for name in self.columns}
        return Table(steps.Project(self._node, {**old, **columns}, verb="compute"))

    def partition(self, num_partitions: int) -> Table:
        """The same rows in the same order, in so many equal partitions."""
        return Table(Repartition(self._node, _positive(num_partitions, "num_partitions")))

    def union(self, *others: Table) -> Table:
        """The rows of this table, then those of the others; columns must be the same."""
        for other in others:
            if not other.schema.equals(self.schema):
                raise InputError(f"a union needs equal columns; got\n{self.schema}\nand\n{other.schema}.")
        return Table(Union([self._node, *(other._node for other in others)]))

    # -- what it is ------------------------------------------------------------------------------------------------

    @property
    def num_partitions(self) -> int:
        """How many partitions there are."""
        return self._node.num_partitions

    @property
    def num_rows(self) -> int:
        """How many rows there are; computed where it is not known."""
        known = self._node.num_rows
        return sum(count_rows(self._node, current_executor())) if known is None else known

    def __len__(self) -> int:
        return self.num_rows

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the columns; behind a function they are known by running it on the first batch."""
        if self._schema is None:
            self._schema = self._node.schema or self._first_schema()
        return self._schema

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return list(self.schema.names)

    def explain(self) -> str:
        """The plan, as text: what is computed from what, sources last."""
        return explain(self._node)

    def fingerprint(self) -> str:
        """A hash of everything the rows depend on."""
        return self._node.fingerprint()

    def __repr__(self) -> str:
        columns = ", ".join(f"{field.name}: {tensors.type_name(field.type)}" for field in self.schema)
        return f"Table({columns})"

    # -- actions ---------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Record batches in order, computed as they are asked for."""
        for piece in self._node.pieces(current_executor()):
            yield from piece.batches()

    def to_arrow(self) -> pa.Table:
        """All rows as one Arrow table."""
        whole = self._node.whole() if isinstance(self._node, Source) else None
        if whole is not None:
            return whole
        parts = current_executor().map(pass_on, self._node.pieces(current_executor()))
        batches = [batch for part in parts for batch in part.batches()]
        if not batches:
            return self.schema.empty_table()
        first = batches[0].schema
        return pa.Table.from_batches([steps.conform(b, first, where="between partitions") for b in batches])

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
        held: list[pa.RecordBatch] = []
        missing = num_rows
        for batch in self:
            held.append(batch.slice(0, missing))
            missing -= held[-1].num_rows
            if missing <= 0:
                break
        return Table(MemorySource(pa.Table.from_batches(held) if held else self.schema.empty_table(), title="head"))

    def show(self, num_rows: int = 5) -> None:
        """Print the first rows."""
        from trek.data.looking import render_rows

        print(render_rows(self.head(num_rows).to_arrow()))

    def describe(self) -> pd.DataFrame:
        """For each column its type, how many values, how many missing, distinct texts, min, max, mean, std."""
        from trek.data.looking import describe_batches

        return describe_batches(self.schema, iter(self))

    def persist(self, path: str | Path, *, storage: Storage = "parquet", overwrite: bool = False) -> Table:
        """Compute into a folder of shards, one for each partition, and read from there.

        When the folder holds the result of an equal plan, it is verified and used as it is.
        """
        from trek.data.persist import persist

        return Table(
            persist(self._node, Path(path).expanduser(), current_executor(), storage=storage, overwrite=overwrite)
        )

    def batches(
        self,
        batch_size: int,
        *,
        shuffle: bool = False,
        seed: int = 0,
        world: World | None = None,
        tail: Tail = "keep",
        columns: Sequence[str] | None = None,
        epoch: int = 0,
    ) -> Batches:
        """Batches of tensors for training, a tuple of the columns each; `batch_size` is that of all ranks together.

        Rows are named by global index: every rank has the same number of batches, no row comes twice, none is lost.
        """
        from trek.data.batches import Batches
        from trek.world import World

        self._require_columns(columns or [])
        table = self.select(*columns) if columns else self
        return Batches(table, batch_size, shuffle=shuffle, seed=seed, world=world or World(), tail=tail, epoch=epoch)

    def _first_schema(self) -> pa.Schema:
        for batch in self:
            return batch.schema
        raise InputError(f"the table has no rows, so its columns are not known:\n{self.explain()}")

    def _require_columns(self, names: Sequence[str]) -> None:
        missing = [name for name in names if name not in self.columns]
        if missing:
            raise InputError(f"column {missing[0]!r} does not exist. There are: {', '.join(self.columns)}.")


def _positive(number: int, name: str) -> int:
    if number < 1:
        raise InputError(f"{name} must be at least 1, got {number}.")
    return number


def _columns(table: pa.Table) -> tuple[list[str], list[pa.ChunkedArray]]:
    return table.column_names, table.columns
