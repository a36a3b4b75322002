"""Joins of whole Arrow tables, with columns of any type: those that Arrow cannot join are fetched by row number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pyarrow as pa

from trek.data.tensors import to_column
from trek.errors import InputError

How = Literal["inner", "left", "right", "outer"]
_KINDS = {"inner": "inner", "left": "left outer", "right": "right outer", "outer": "full outer"}


def joined_names(left: Sequence[str], right: Sequence[str], on: Sequence[str], *, suffix: str) -> dict[str, str]:
    """The names that the right table's columns take beside the left's."""
    names = {name: f"{name}{suffix}" if name in left else name for name in right if name not in on}
    clash = [new for new in names.values() if list(names.values()).count(new) > 1 or new in left]
    if clash:
        raise InputError(f"the join would give two columns the name {clash[0]!r}. Use another suffix than {suffix!r}.")
    return names


def require_join(left: pa.Schema, right: pa.Schema, on: Sequence[str], how: str) -> None:
    """Refuse an unknown kind of join, a missing key, keys of different types."""
    if how not in _KINDS:
        raise InputError(f"join {how!r} does not exist. Use one of: {', '.join(_KINDS)}.")
    if not on:
        raise InputError("a join needs at least one column to join on.")
    for key in on:
        for schema, side in ((left, "left"), (right, "right")):
            if key not in schema.names:
                raise InputError(f"the {side} table has no column {key!r}. It has: {', '.join(schema.names)}.")
        if left.field(key).type != right.field(key).type:
            raise InputError(
                f"key {key!r} is {left.field(key).type} on the left and {right.field(key).type} on the right. "
                "Convert both to one type with map()."
            )


def join_tables(
    left: pa.Table, right: pa.Table, *, on: Sequence[str], how: How, suffix: str, columns: Sequence[str] | None = None
) -> pa.Table:
    """Rows with equal keys side by side: all columns, or these. A missing key equals nothing, not even another one."""
    names = joined_names(left.column_names, right.column_names, on, suffix=suffix)
    kept = [name for name in left.column_names if name not in on and (columns is None or name in columns)]
    names = {name: new for name, new in names.items() if columns is None or new in columns}
    sides = _Side(left, on, kept, "left"), _Side(right, on, list(names), "right")
    rows = sides[0].joinable.join(
        sides[1].joinable, keys=[f"key:{key}" for key in on], join_type=_KINDS[how], coalesce_keys=True
    )
    found = {key: rows.column(f"key:{key}") for key in on}
    found |= {name: sides[0].column(name, rows) for name in kept}
    found |= {new: sides[1].column(name, rows) for name, new in names.items()}
    return pa.table(found if columns is None else {name: found[name] for name in columns})


class _Side:
    """One table of a join: what Arrow can join goes in as it is, the rest is fetched afterwards by row number."""

    def __init__(self, table: pa.Table, on: Sequence[str], names: Sequence[str], side: str) -> None:
        self._table = table
        self._prefix = f"{side}:"
        columns = {f"key:{key}": table.column(key) for key in on}
        columns |= {self._prefix + name: table.column(name) for name in names if _joins(table.schema.field(name).type)}
        if not all(_joins(table.schema.field(name).type) for name in names):
            columns[self._prefix] = pa.chunked_array([np.arange(table.num_rows)])
        self.joinable = pa.table(columns)

    def column(self, name: str, rows: pa.Table) -> pa.ChunkedArray:
        """A column of this side in the joined rows."""
        if _joins(self._table.schema.field(name).type):
            return rows.column(self._prefix + name)
        whole = to_column(self._table.column(name), name=name)
        numbers = rows.column(self._prefix)
        return pa.chunked_array([whole.take(chunk) for chunk in numbers.chunks], type=whole.type)


def _joins(kind: pa.DataType) -> bool:
    return bool(not isinstance(kind, pa.BaseExtensionType) and (pa.types.is_primitive(kind) or _is_text(kind)))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))
