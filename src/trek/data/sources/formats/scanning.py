"""Scans of files by Polars: which files it reads as Arrow does, and with which types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from trek.data.column_types import kept_schema
from trek.data.execution.polars_engine import load_polars
from trek.data.plans.capabilities import is_known
from trek.data.plans.polars_types import empty_frame

if TYPE_CHECKING:
    import polars as pl


def all_alike(paths: Sequence[str], schema: pa.Schema, *, read_schema: Callable[[str], pa.Schema]) -> bool:
    """Whether every file has the columns of `schema` in types that Polars reads as Arrow does.

    Files that cannot be opened are not alike either: whoever reads them next says what is wrong with them.
    """
    if not all(_is_plain(field) for field in schema):
        return False
    try:
        return all(_has_columns(read_schema(path), schema) for path in paths)
    except (pa.ArrowException, OSError):
        return False


def typed(frame: pl.LazyFrame, schema: pa.Schema) -> pl.LazyFrame:
    """The columns of `schema`, converted where Polars reads a file with another type."""
    wanted, found = empty_frame(schema).schema, frame.collect_schema()
    columns = [load_polars().col(name) for name in schema.names]
    return frame.select(
        [c if found[n] == wanted[n] else c.cast(wanted[n]) for n, c in zip(schema.names, columns, strict=True)]
    )


def with_constants(frame: pl.LazyFrame, schema: pa.Schema, values: Mapping[str, Any]) -> pl.LazyFrame:
    """The columns of `schema`; those of `values` have the same value in all rows."""
    kinds = empty_frame(schema).schema
    constants = [load_polars().lit(v, dtype=kinds[n]).alias(n) for n, v in values.items() if n in schema.names]
    return frame.with_columns(constants).select(schema.names)


def _has_columns(found: pa.Schema, schema: pa.Schema) -> bool:
    kept = kept_schema(found)
    return all(
        field.name in kept.names and kept.field(field.name).type == field.type and not found.field(field.name).metadata
        for field in schema
    )


def _is_plain(field: pa.Field) -> bool:
    is_ordered = pa.types.is_dictionary(field.type) and field.type.ordered
    return is_known(field.type) and not is_ordered
