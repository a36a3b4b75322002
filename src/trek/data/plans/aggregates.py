"""Aggregates: what `reduce` computes, and what each is in Polars. Knows nothing of plans.

All of them leave missing values out; over nothing but missing values the result is missing (a count is 0). std and var
divide by n - 1. Sums of integers have 64 bits; sums, means and deviations of floats are computed in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from trek.data.execution.fresh_process import in_fresh_process
from trek.data.execution.polars_engine import is_usable, load_polars, polars_errors
from trek.data.plans.capabilities import require_aggregate
from trek.data.plans.polars_types import Carrier, arrow_type, empty_frame, to_arrow, to_polars
from trek.errors import InputError

if TYPE_CHECKING:
    import polars as pl

_FUNCTIONS: dict[str, Callable[[Any], pl.Expr]] = {
    "sum": lambda x: x.sum(),
    "mean": lambda x: x.mean(),
    "min": lambda x: x.min(),
    "max": lambda x: x.max(),
    "count": lambda x: x.count(),
    "std": lambda x: x.std(ddof=1),
    "var": lambda x: x.var(ddof=1),
    "first": lambda x: x.first(ignore_nulls=True),
    "last": lambda x: x.last(ignore_nulls=True),
    "any": lambda x: x.any(),
    "all": lambda x: x.all(),
    "count_distinct": lambda x: x.drop_nulls().n_unique(),
}
_KEEPING = {"min", "max", "first", "last"}
_NEVER_MISSING = {"sum", "any", "all"}  # in Polars, where ours are missing when every value is
_COUNTS = {"count", "count_distinct"}
_COMBINING = {"sum": "sum", "count": "sum", "min": "min", "max": "max", "any": "any", "all": "all"}
"""By function, the one that puts what it gave for some rows each together to what it gives for all."""
_ROWS = "number of rows"
_OF_NUMBERS = {"sum", "mean", "std", "var"}

AggregateSpec = Mapping[str, str | tuple[str, str]]
"""`{"x": "sum"}`, or with a new name `{"total": ("x", "sum")}`; `("*", "count")` counts rows."""


@dataclass(frozen=True)
class Aggregate:
    """One column of a result: `function` over `column`, called `name`."""

    name: str
    column: str
    function: str


def parse_aggregates(asked: AggregateSpec, schema: pa.Schema, *, keys: Sequence[str] = ()) -> list[Aggregate]:
    """The aggregates that `asked` describes, checked against the columns."""
    if not isinstance(asked, Mapping) or not asked:
        raise InputError(
            f'reduce() needs at least one aggregate, such as {{"x": "sum"}} or {{"n": ("*", "count")}}, got {asked!r}.'
        )
    parsed = [_parse(name, one) for name, one in asked.items()]
    for aggregate in parsed:
        _check(aggregate, schema)
        if aggregate.name in keys:
            raise InputError(
                f"{aggregate.name!r} is a key and cannot be the name of an aggregate too. "
                f'Use another name: {{"n": ("{aggregate.column}", "{aggregate.function}")}}.'
            )
    return parsed


def aggregate_frame(
    frame: pl.LazyFrame,
    schema: pa.Schema,
    aggregates: Sequence[Aggregate],
    *,
    keys: Sequence[str] = (),
    filled: Container[str] = (),
) -> pl.LazyFrame:
    """One row for each key, by key in ascending order, missing ones last; or one row in all, none of no rows.

    Missing values are not looked for in the columns `filled`, where there are none.
    """
    asked = [_asked(aggregate, schema, is_filled=aggregate.column in filled) for aggregate in aggregates]
    if keys:
        return frame.group_by(list(keys)).agg(asked).sort(list(keys), nulls_last=True)
    rows = load_polars().len().alias(_ROWS)
    return frame.select([*asked, rows]).filter(load_polars().col(_ROWS) > 0).drop(_ROWS)


def aggregate_schema(schema: pa.Schema, aggregates: Sequence[Aggregate], *, keys: Sequence[str] = ()) -> pa.Schema:
    """Keys, then the aggregates: smallest, greatest, first and last values keep their type."""
    kinds = aggregate_frame(empty_frame(schema).lazy(), schema, aggregates, keys=keys).collect_schema()
    fields = [(key, schema.field(key).type) for key in keys]
    for aggregate in aggregates:
        keeps = aggregate.function in _KEEPING
        fields.append(
            (aggregate.name, schema.field(aggregate.column).type if keeps else arrow_type(kinds[aggregate.name]))
        )
    return pa.schema(fields)


def aggregate_table(table: pa.Table, aggregates: Sequence[Aggregate], *, keys: Sequence[str] = ()) -> pa.Table:
    """`aggregate_frame` of a table in memory."""
    if not is_usable():
        return in_fresh_process(partial(aggregate_table, aggregates=aggregates, keys=keys), table)
    carrier, schema = Carrier(), aggregate_schema(table.schema, aggregates, keys=keys)
    used = dict.fromkeys([*keys, *(a.column for a in aggregates if a.column != "*")])
    with polars_errors("aggregates"):
        frame = to_polars(table.select(list(used)) if used else table, carrier).lazy()
        found = aggregate_frame(frame, table.schema, aggregates, keys=keys).select(schema.names).collect()
    return pa.Table.from_batches(to_arrow(found, schema, carrier), schema)


def combined(aggregates: Sequence[Aggregate]) -> tuple[Aggregate, ...] | None:
    """What gives `aggregates` of all rows from those of some each, in any order; None if that is not possible."""
    if any(one.function not in _COMBINING for one in aggregates):
        return None
    return tuple(Aggregate(one.name, one.name, _COMBINING[one.function]) for one in aggregates)


def look_for_missing(aggregates: Sequence[Aggregate]) -> set[str]:
    """The columns whose aggregates take longer where values may be missing."""
    return {aggregate.column for aggregate in aggregates if aggregate.function in _NEVER_MISSING}


def _parse(name: str, asked: str | tuple[str, str]) -> Aggregate:
    if isinstance(asked, str):
        return Aggregate(name, name, asked)
    if not isinstance(asked, tuple | list) or len(asked) != 2:
        raise InputError(f'an aggregate must be "sum" or ("column", "sum"), got {asked!r} for {name!r}.')
    return Aggregate(name, *asked)


def _check(aggregate: Aggregate, schema: pa.Schema) -> None:
    if aggregate.function not in _FUNCTIONS:
        raise InputError(f"aggregate {aggregate.function!r} does not exist. Use one of: {', '.join(_FUNCTIONS)}.")
    if aggregate.column == "*" and aggregate.function == "count":
        return
    if aggregate.column not in schema.names:
        raise InputError(f"column {aggregate.column!r} does not exist. There are: {', '.join(schema.names)}.")
    require_aggregate(aggregate.function, aggregate.column, schema.field(aggregate.column).type)


def _asked(aggregate: Aggregate, schema: pa.Schema, *, is_filled: bool) -> pl.Expr:
    load_polars()
    import polars as pl

    if aggregate.column == "*":
        return pl.len().cast(pl.Int64).alias(aggregate.name)
    column = pl.col(aggregate.column)
    kind = schema.field(aggregate.column).type
    if aggregate.function in _OF_NUMBERS and (pa.types.is_floating(kind) or aggregate.function != "sum"):
        column = column if pa.types.is_decimal(kind) or pa.types.is_duration(kind) else column.cast(pl.Float64)
    if aggregate.function == "sum" and (pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        column = column.cast(pl.UInt64 if not pa.types.is_signed_integer(kind) else pl.Int64)
    found = _FUNCTIONS[aggregate.function](column)
    if aggregate.function in _COUNTS:
        found = found.cast(pl.Int64)
    if aggregate.function in _NEVER_MISSING and not is_filled:
        found = pl.when(pl.col(aggregate.column).count() > 0).then(found)
    return found.alias(aggregate.name)
