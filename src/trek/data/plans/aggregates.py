"""Aggregates: what `reduce` computes, by Arrow's group-by. Works on whole tables; knows nothing of plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from trek.errors import InputError

# what a user writes -> Arrow's hash aggregate
_FUNCTIONS = {
    "sum": "sum",
    "mean": "mean",
    "min": "min",
    "max": "max",
    "count": "count",
    "std": "stddev",
    "var": "variance",
    "first": "first",
    "last": "last",
    "any": "any",
    "all": "all",
    "count_distinct": "count_distinct",
}
_ORDERED = {"first", "last"}
_OF_NUMBERS = {"sum", "mean", "std", "var"}
_OF_BOOLEANS = {"any", "all"}

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


def aggregate_table(table: pa.Table, aggregates: Sequence[Aggregate], *, keys: Sequence[str] = ()) -> pa.Table:
    """One row for each key (one row in all without keys). std and var divide by n - 1, as pandas does."""
    has_order = any(aggregate.function in _ORDERED for aggregate in aggregates)
    asked = [_ask(aggregate) for aggregate in aggregates]
    result = table.group_by(list(keys), use_threads=not has_order).aggregate(asked)
    # By position: two aggregates may ask for the same, and Arrow's names for them may be those of keys.
    names = [*keys, *(aggregate.name for aggregate in aggregates)]
    return pa.table(dict(zip(names, result.columns, strict=True)))


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
    kind = schema.field(aggregate.column).type
    if isinstance(kind, pa.BaseExtensionType) or pa.types.is_nested(kind):
        raise InputError(
            f"{aggregate.function!r} cannot be computed for column {aggregate.column!r} of type {kind}. "
            "Pass reduce() a function over arrays instead."
        )
    if aggregate.function in _OF_NUMBERS and not _is_number(kind):
        raise InputError(f"{aggregate.function!r} needs numbers, but column {aggregate.column!r} has type {kind}.")
    if aggregate.function in _OF_BOOLEANS and not pa.types.is_boolean(kind):
        raise InputError(f"{aggregate.function!r} needs booleans, but column {aggregate.column!r} has type {kind}.")


def _is_number(kind: pa.DataType) -> bool:
    checks = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal, pa.types.is_null)
    return any(check(kind) for check in (*checks, pa.types.is_duration))


def _ask(aggregate: Aggregate) -> tuple[object, ...]:
    import pyarrow.compute as pc

    if aggregate.column == "*":
        return ([], "count_all")
    if aggregate.function in ("std", "var"):
        return (aggregate.column, _FUNCTIONS[aggregate.function], pc.VarianceOptions(ddof=1))
    return (aggregate.column, _FUNCTIONS[aggregate.function])
