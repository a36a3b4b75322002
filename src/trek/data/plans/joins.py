"""The columns of a join: which names and types they have, and which joins are refused. `relations` runs them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import pyarrow as pa

from trek.data.column_types import common_type
from trek.errors import InputError

How = Literal["inner", "left", "right", "outer"]
_KINDS = ("inner", "left", "right", "outer")


def joined_names(left: Sequence[str], right: Sequence[str], on: Sequence[str], *, suffix: str) -> dict[str, str]:
    """The names that the right table's columns take beside the left's."""
    names = {name: f"{name}{suffix}" if name in left else name for name in right if name not in on}
    clash = [new for new in names.values() if list(names.values()).count(new) > 1 or new in left]
    if clash:
        raise InputError(f"the join would give two columns the name {clash[0]!r}. Use another suffix than {suffix!r}.")
    return names


def joined_schema(left: pa.Schema, right: pa.Schema, on: Sequence[str], *, suffix: str) -> pa.Schema:
    """Keys, in a type that holds those of both, then the columns of the left, then those of the right."""
    names = joined_names(left.names, right.names, on, suffix=suffix)
    keys = [(key, _key_type(left, right, key)) for key in on]
    others = [(field.name, field.type) for field in left if field.name not in on]
    return pa.schema([*keys, *others, *((new, right.field(name).type) for name, new in names.items())])


def require_join(left: pa.Schema, right: pa.Schema, on: Sequence[str], how: str) -> None:
    """Refuse an unknown kind of join, a missing key, keys of types that do not agree."""
    if how not in _KINDS:
        raise InputError(f"join {how!r} does not exist. Use one of: {', '.join(_KINDS)}.")
    if not on:
        raise InputError("a join needs at least one column to join on.")
    for key in on:
        for schema, side in ((left, "left"), (right, "right")):
            if key not in schema.names:
                raise InputError(f"the {side} table has no column {key!r}. It has: {', '.join(schema.names)}.")
        _key_type(left, right, key)


def _key_type(left: pa.Schema, right: pa.Schema, key: str) -> pa.DataType:
    try:
        return common_type([left.field(key).type, right.field(key).type], name=key, verb="a join")
    except InputError as error:
        raise InputError(
            f"key {key!r} is {left.field(key).type} on the left and {right.field(key).type} on the right. "
            f"Convert one of them, as in with_columns({key}=trek.col({key!r}).cast('string'))."
        ) from error
