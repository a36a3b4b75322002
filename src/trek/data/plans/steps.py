"""Steps that look at one partition alone: map, flat_map, filter, compute, and the choice of columns."""

from __future__ import annotations

import copy
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from trek.data import tensors
from trek.data.column_types import kept_batch
from trek.data.execution.base import Executor
from trek.data.execution.parts import Readable
from trek.data.plans.computing import Once, column_as, computed_types, translate
from trek.data.plans.conforming import settled
from trek.data.plans.expressions import Expression
from trek.data.plans.lowering import lowered_pieces
from trek.data.plans.plan import Context, PartitionStep, PlanNode, Stream
from trek.data.plans.schemas import schema_of
from trek.errors import InputError, TrainingError, TrekError
from trek.fingerprints import source_name

if TYPE_CHECKING:
    import polars as pl

    from trek.data.plans.lowering import Lowering

Format = Literal["numpy", "arrow", "rows"]
"""What a function sees: a dict of arrays, a record batch, or one row as a dict."""


class Map(PartitionStep):
    """A function over batches or rows; rows may become fewer or more when it sees batches."""

    is_by_row = True

    def __init__(self, node: PlanNode, function: Callable[[Any], Any], *, format: Format = "numpy") -> None:  # noqa: A002
        super().__init__(node)
        self.function = function
        self.format = format

    def describe(self) -> str:
        """One line for `explain`."""
        return f"map {source_name(self.function)}" + ("" if self.format == "numpy" else f" ({self.format})")

    def identity(self) -> Any:
        """The function and what it sees."""
        return (self.function, self.format)

    def apply(self, batches: Stream, context: Context) -> Stream:
        """The function's results, held to the columns of the first."""
        return settled(self._results(batches, context), title=self.describe())

    def schema_without_rows(self) -> pa.Schema | None:
        """What the function returns for a batch without rows; one that sees single rows is not called."""
        return (
            None
            if self.format == "rows"
            else schema_of_no_rows(self.inputs[0], lambda batch: self._run(batch, "no rows"))
        )

    def _results(self, batches: Stream, context: Context) -> Iterator[tuple[pa.RecordBatch, str]]:
        return ((self._run(batch, rows), rows) for batch, rows in numbered(batches, context))

    def _run(self, batch: pa.RecordBatch, rows: str) -> pa.RecordBatch:
        with_context = f"{self.describe()}, {rows}"
        if self.format == "rows":
            results = [call(self.function, row, where=with_context) for row in rows_of(batch)]
            return batch_of_rows(results, where=with_context, before=batch.schema)
        if self.format == "arrow":
            return to_batch(call(self.function, batch, where=with_context), where=with_context)
        return self._run_on_arrays(batch, with_context)

    def _run_on_arrays(self, batch: pa.RecordBatch, where: str) -> pa.RecordBatch:
        """Arrays that the function returns unchanged stay the columns they were: with type and missing values."""
        arrays = arrays_of(batch)
        for array in arrays.values():
            array.setflags(write=False)  # also copies: what is written to them would be lost
        columns = {id(arrays[name]): batch.column(name) for name in arrays}
        result = call(self.function, dict(arrays), where=where)
        if isinstance(result, Mapping):
            result = {name: columns.get(id(values), values) for name, values in result.items()}
        return to_batch(result, where=where)


class FlatMap(PartitionStep):
    """A function that returns any number of rows (dicts) for each row."""

    is_by_row = True

    def __init__(self, node: PlanNode, function: Callable[[dict[str, Any]], Any]) -> None:
        super().__init__(node)
        self.function = function

    def describe(self) -> str:
        """One line for `explain`."""
        return f"flat_map {source_name(self.function)}"

    def identity(self) -> Any:
        """The function."""
        return self.function

    def apply(self, batches: Stream, context: Context) -> Stream:
        """All rows the function returns, batch after batch."""
        return settled(self._results(batches, context), title=self.describe())

    def _results(self, batches: Stream, context: Context) -> Iterator[tuple[pa.RecordBatch, str]]:
        for batch, rows in numbered(batches, context):
            where = f"{self.describe()}, {rows}"
            results = [new for row in rows_of(batch) for new in call(_listed, self.function, row, where=where)]
            if results:
                yield batch_of_rows(results, where=where, before=batch.schema), rows


class Filter(PartitionStep):
    """Rows for which a condition is true; a missing result counts as false."""

    is_by_row = True
    derives_schema = True

    def __init__(self, node: PlanNode, condition: Expression | Callable[[dict[str, np.ndarray]], Any]) -> None:
        super().__init__(node)
        self.condition = condition

    @property
    def is_relational(self) -> bool:  # type: ignore[override]
        """Expressions are, functions are not."""
        return isinstance(self.condition, Expression)

    @property
    def is_query(self) -> bool:  # type: ignore[override]
        """An expression over the rows of one."""
        return self.is_relational and self.inputs[0].is_query

    @property
    def is_fixed(self) -> bool:  # type: ignore[override]
        """An expression always gives the same for stored rows; what a function does is not known."""
        return isinstance(self.condition, Expression) and self.inputs[0].is_fixed

    @property
    def schema(self) -> pa.Schema | None:
        """As it was."""
        return self.inputs[0].schema

    def describe(self) -> str:
        """One line for `explain`."""
        is_expression = isinstance(self.condition, Expression)
        return f"filter {self.condition!r}" if is_expression else f"filter {source_name(self._function)}"

    def identity(self) -> Any:
        """The condition."""
        return self.condition

    def narrowed(self, names: Sequence[str]) -> PlanNode | None:
        """Columns that are needed neither by the condition nor after it are not read; for expressions only."""
        schema = self.inputs[0].schema
        if not isinstance(self.condition, Expression) or schema is None:
            return None
        used = [*names, *sorted(self.condition.columns - set(names))]
        before = self.inputs[0].narrowed(used) if len(used) < len(schema) else None
        if before is None:
            return None
        return Project(Filter(before, self.condition), {name: name for name in names}, verb="select")

    def pieces(self, executor: Executor) -> list[Readable]:
        """Queries of Polars where it can scan the rows, or the input's partitions followed by this step."""
        return lowered_pieces(self, executor) or super().pieces(executor)

    def filled(self, names: Iterable[str]) -> frozenset[str]:
        """As before."""
        return self.inputs[0].filled(names)

    def single(self, index: int) -> PlanNode | None:
        """The filter over one partition."""
        before = self.inputs[0].single(index) if isinstance(self.condition, Expression) else None
        return None if before is None else Filter(before, self.condition)

    def lowered(self, lowering: Lowering) -> pl.LazyFrame | None:
        """An expression as Polars has it; a function is not relational."""
        if not isinstance(self.condition, Expression):
            return None
        schema = schema_of(self.inputs[0])
        (translated,) = translate({"condition": self.condition}, schema)
        _require_condition(self.condition, schema, where=self.describe())
        return lowering.frame(self.inputs[0]).filter(translated)

    def apply(self, batches: Stream, context: Context) -> Stream:
        """The rows that pass."""
        computation = Once()
        for batch, rows in numbered(batches, context):
            kept = batch.filter(self._mask(batch, computation, f"{self.describe()}, {rows}"))
            if kept.num_rows:
                yield kept

    @property
    def _function(self) -> Callable[..., Any]:
        assert not isinstance(self.condition, Expression)
        return self.condition

    def _mask(self, batch: pa.RecordBatch, computation: Once, where: str) -> pa.Array:
        if isinstance(self.condition, Expression):
            (mask,) = computation.compute({"condition": self.condition}, batch)
        else:
            mask = tensors.to_column(call(self._function, arrays_of(batch), where=where), name="condition")
        if not pa.types.is_boolean(mask.type) or len(mask) != batch.num_rows:
            raise InputError(
                f"{where}: a condition must give one boolean for each of {batch.num_rows} rows, "
                f"got {len(mask)} values of type {mask.type}."
            )
        return mask


class Project(PartitionStep):
    """Columns chosen, left out, renamed or computed, by position in the new order."""

    is_by_row = True
    is_relational = True
    derives_schema = True

    def __init__(self, node: PlanNode, columns: Mapping[str, str | Expression], *, verb: str) -> None:
        super().__init__(node)
        self.columns = dict(columns)
        self.verb = verb
        self._schema: pa.Schema | None = None

    @property
    def is_query(self) -> bool:  # type: ignore[override]
        """Over the rows of one."""
        return self.inputs[0].is_query

    @property
    def is_fixed(self) -> bool:  # type: ignore[override]
        """As before."""
        return self.inputs[0].is_fixed

    @property
    def schema(self) -> pa.Schema | None:
        """The chosen columns; the types of computed ones are those they have without rows."""
        before = self.inputs[0].schema if self.inputs else None
        if before is None:
            return None
        if self._schema is None:
            types = computed_types(self._expressions, before)
            fields = [(n, types[n] if n in types else before.field(s).type) for n, s in self.columns.items()]
            self._schema = pa.schema(fields)
        return self._schema

    @property
    def _expressions(self) -> dict[str, Expression]:
        return {name: source for name, source in self.columns.items() if isinstance(source, Expression)}

    @property
    def num_rows(self) -> int | None:
        """As many as before."""
        return self.inputs[0].num_rows

    def describe(self) -> str:
        """One line for `explain`."""
        return f"{self.verb} {', '.join(self.columns)}"

    def identity(self) -> Any:
        """New names and where each comes from."""
        return list(self.columns.items())

    def pieces(self, executor: Executor) -> list[Readable]:
        """The input is asked for no more columns than are used."""
        lowered = lowered_pieces(self, executor)
        if lowered is not None:
            return lowered
        used = list(dict.fromkeys(name for source in self.columns.values() for name in _names_in(source)))
        node = self.inputs[0].narrowed(used) if used else None
        if node is None:
            return super().pieces(executor)
        if list(self.columns.items()) == [(name, name) for name in used]:
            return node.pieces(executor)
        step = copy.copy(self)
        step.inputs = (node,)
        return super(Project, step).pieces(executor)

    def whole(self) -> pa.Table | None:
        """Columns that are only chosen and renamed, over the same memory."""
        whole = None if self._expressions else self.inputs[0].whole()
        return None if whole is None else whole.select(list(self.columns.values())).rename_columns(list(self.columns))

    def narrowed(self, names: Sequence[str]) -> PlanNode | None:
        """Fewer columns chosen or computed."""
        return Project(self.inputs[0], {name: self.columns[name] for name in names}, verb=self.verb)

    def apply(self, batches: Stream, context: Context) -> Stream:
        """The same rows with other columns."""
        computation, expressions = Once(), self._expressions
        for batch in batches:
            computed = dict(zip(expressions, computation.compute(expressions, batch), strict=True))
            arrays = [computed[name] if name in computed else batch.column(s) for name, s in self.columns.items()]
            yield pa.RecordBatch.from_arrays(arrays, names=list(self.columns))

    def filled(self, names: Iterable[str]) -> frozenset[str]:
        """Columns that were chosen or renamed, as before; nothing is known of computed ones."""
        chosen = {name: source for name in names if isinstance(source := self.columns[name], str)}
        before = self.inputs[0].filled(chosen.values())
        return frozenset(name for name, source in chosen.items() if source in before)

    def single(self, index: int) -> PlanNode | None:
        """The same columns of one partition."""
        before = self.inputs[0].single(index)
        return None if before is None else Project(before, self.columns, verb=self.verb)

    def lowered(self, lowering: Lowering) -> pl.LazyFrame | None:
        """Columns chosen, renamed and computed by Polars."""
        translated = translate(self._expressions, schema_of(self.inputs[0]))
        computed = dict(zip(self._expressions, translated, strict=True))
        columns = [computed[n] if n in computed else column_as(str(s), n) for n, s in self.columns.items()]
        return lowering.frame(self.inputs[0]).select(columns)


class RequireFinite(PartitionStep):
    """Passes rows on, and refuses numbers that are missing, NaN or infinite."""

    is_by_row = True
    derives_schema = True

    def __init__(self, node: PlanNode, columns: Sequence[str]) -> None:
        super().__init__(node)
        self.columns = list(columns)

    @property
    def is_fixed(self) -> bool:  # type: ignore[override]
        """As before."""
        return self.inputs[0].is_fixed

    @property
    def schema(self) -> pa.Schema | None:
        """As it was."""
        return self.inputs[0].schema

    @property
    def num_rows(self) -> int | None:
        """As many as before."""
        return self.inputs[0].num_rows

    def describe(self) -> str:
        """One line for `explain`."""
        return f"require finite {', '.join(self.columns)}"

    def identity(self) -> Any:
        """The columns."""
        return self.columns

    def apply(self, batches: Stream, context: Context) -> Stream:
        """The rows as they came."""
        for batch, rows in numbered(batches, context):
            for name in self.columns:
                self._check(tensors.to_numpy(batch.column(name)), name, rows)
            yield batch

    def _check(self, values: np.ndarray, name: str, rows: str) -> None:
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            bad = np.flatnonzero(~np.isfinite(values.reshape(len(values), -1)).all(axis=1))
            raise InputError(
                f"{rows}: column {name!r} is missing, NaN or infinite in {len(bad)} rows, first at row {bad[0]} of "
                "these. Fill them with map(), or filter() them out."
            )


def call(function: Callable[..., Any], *arguments: Any, where: str) -> Any:
    """Call a user's function; its failure says where, and keeps the user's traceback only."""
    try:
        return function(*arguments)
    except TrekError:
        raise
    except Exception as error:
        raise failure(error, where) from error


def schema_of_no_rows(node: PlanNode, run: Callable[[pa.RecordBatch], Any]) -> pa.Schema | None:
    """The columns of what `run` makes of a batch of `node` without rows; None if it cannot do without."""
    try:
        found: pa.Schema = run(pa.RecordBatch.from_pylist([], schema_of(node))).schema
    except (TrekError, IndexError):
        return None
    return found


def numbered(batches: Stream, context: Context) -> Iterator[tuple[pa.RecordBatch, str]]:
    """Batches that have rows, each with a description of where its rows are."""
    start = 0
    for batch in batches:
        if batch.num_rows:
            yield batch, f"rows {start} to {start + batch.num_rows - 1} of partition {context.index}"
            start += batch.num_rows


def arrays_of(batch: pa.RecordBatch) -> dict[str, np.ndarray]:
    """Columns as arrays, over the same memory where that can be."""
    return {name: tensors.to_numpy(column) for name, column in zip(batch.schema.names, batch.columns, strict=True)}


def rows_of(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """One dict for each row; tensors as arrays."""
    columns = {
        name: tensors.to_numpy(column) if isinstance(column.type, pa.FixedShapeTensorType) else column.to_pylist()
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    }
    return ({name: column[row] for name, column in columns.items()} for row in range(batch.num_rows))


def to_batch(result: Any, *, where: str) -> pa.RecordBatch:
    """What a user's function returned, as a record batch."""
    if isinstance(result, pa.RecordBatch):
        return kept_batch(result)
    if isinstance(result, pa.Table):
        result = dict(zip(result.column_names, result.columns, strict=True))
    if not isinstance(result, Mapping):
        raise InputError(
            f"{where}: the function returned a {type(result).__name__}; expected columns, as a dict of arrays."
        )
    for name in result:
        if not isinstance(name, str):
            raise InputError(f"{where}: the name of a column must be a text, got {name!r}.")
    try:
        columns = {name: tensors.to_column(values, name=name) for name, values in result.items()}
    except InputError as error:
        raise InputError(f"{where}: {error}") from error
    if not columns:
        raise InputError(f"{where}: the function returned no columns; expected at least one.")
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise InputError(f"{where}: the function returned columns of different lengths, {lengths}.")
    return kept_batch(pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns)))


def batch_of_rows(rows: list[Any], *, where: str, before: pa.Schema | None = None) -> pa.RecordBatch:
    """Dicts, one for each row, as a record batch; all must have the same keys.

    A column that was uint64 in `before` stays uint64 if it can: what values there are says nothing of those to come.
    """
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise InputError(f"{where}: the function returned a {type(row).__name__} for a row; expected a dict.")
        if row.keys() != rows[0].keys():
            raise InputError(f"{where}: row {number} has columns {list(row)}, row 0 has {list(rows[0])}.")
    columns: dict[str, Any] = {name: [row[name] for row in rows] for name in rows[0]}
    for name in columns:
        if before is not None and name in before.names and before.field(name).type == pa.uint64():
            unsigned = tensors.natural_numbers(columns[name])
            columns[name] = columns[name] if unsigned is None else unsigned
    return to_batch(columns, where=where)


def _require_condition(condition: Expression, schema: pa.Schema, *, where: str) -> None:
    kind = computed_types({"condition": condition}, schema)["condition"]
    if not pa.types.is_boolean(kind):
        raise InputError(f"{where}: a condition must give one boolean for each row, got values of type {kind}.")


def _names_in(source: str | Expression) -> list[str]:
    return [source] if isinstance(source, str) else sorted(source.columns)


def failure(error: Exception, where: str) -> TrainingError:
    """The error of a user's function, which says where it happened and keeps the user's traceback only."""
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if Path(frame.filename).parent != Path(__file__).parent]
    text = "".join(["Traceback (most recent call last):\n", *traceback.format_list(theirs)])
    text += "".join(traceback.format_exception_only(error))
    return TrainingError(f"{where}: {type(error).__name__}: {error}", traceback_text=text)


def _listed(function: Callable[[dict[str, Any]], Any], row: dict[str, Any]) -> list[Any]:
    return list(function(row))
