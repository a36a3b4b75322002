"""Joins of whole Arrow tables, with columns of any type: Arrow joins keys and row numbers, the columns follow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pyarrow as pa

from trek.errors import InputError

How = Literal["inner", "left", "right", "outer"]
_KINDS = {"inner": "inner", "left": "left outer", "right": "right outer", "outer": "full outer"}
_LEFT, _RIGHT = "__left_row", "__right_row"


def joined_names(left: Sequence[str], right: Sequence[str], on: Sequence[str], *, suffix: str) -> dict[str, str]:
    """The names that the right table's columns take beside the left's."""
    names = {name: f"{name}{suffix}" if name in left else name for name in right if name not in on}
    clash = [new for new in names.values() if list(names.values()).count(new) > 1 or new in left]
    if clash:
        raise InputError(f"the join would give two columns the name {clash[0]!r}. Use another suffix than {suffix!r}.")
    return names


def require_join(left: pa.Schema, right: pa.Schema, on: Sequence[str], how: str) -> None:
    """Refuse a join that cannot be: an unknown kind, a missing key, keys of different types."""
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
                "Bring both to one type with map()."
            )


def join_tables(left: pa.Table, right: pa.Table, *, on: Sequence[str], how: How, suffix: str) -> pa.Table:
    """Rows with equal keys side by side; a missing key equals nothing, not even another missing one."""
    names = joined_names(left.column_names, right.column_names, on, suffix=suffix)
    keys = _numbered(left, on, _LEFT).join(
        _numbered(right, on, _RIGHT), keys=list(on), join_type=_KINDS[how], coalesce_keys=True
    )
    columns = {key: keys.column(key) for key in on}
    left_rows, right_rows = keys.column(_LEFT), keys.column(_RIGHT)
    columns |= {name: _take(left.column(name), left_rows) for name in left.column_names if name not in on}
    columns |= {new: _take(right.column(name), right_rows) for name, new in names.items()}
    return pa.table(columns)


def _numbered(table: pa.Table, on: Sequence[str], name: str) -> pa.Table:
    return table.select(list(on)).append_column(name, pa.array(np.arange(table.num_rows)))


def _take(column: pa.ChunkedArray, rows: pa.ChunkedArray) -> pa.ChunkedArray:
    whole = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if isinstance(whole, pa.ChunkedArray):
        whole = pa.concat_arrays(whole.chunks) if whole.num_chunks else pa.array([], type=column.type)
    return pa.chunked_array([whole.take(chunk) for chunk in rows.chunks], type=column.type)
