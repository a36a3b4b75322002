"""What operations can do with columns of which types: the one table that they ask before they compute.

Every type is carried: rows are chosen, ordered and joined by other columns, and come back as they were. What looks at
values needs a type that Polars can compare; a column that it only carries is counted by what is missing in it.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from trek.errors import InputError

Check = Callable[[pa.DataType], bool]


def is_known(kind: pa.DataType) -> bool:
    """Whether Polars has a type for values of `kind`."""
    if isinstance(kind, pa.BaseExtensionType):
        return isinstance(kind, pa.FixedShapeTensorType)
    if pa.types.is_decimal256(kind) or pa.types.is_interval(kind) or pa.types.is_union(kind):
        return False
    if pa.types.is_run_end_encoded(kind) or pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        return False
    if pa.types.is_dictionary(kind):
        return is_known(kind.value_type)
    return all(is_known(kind.field(index).type) for index in range(kind.num_fields))


def is_comparable(kind: pa.DataType) -> bool:
    """Whether values are equal or in order: not tensors, lists and structs, nor what Polars has no type for."""
    return is_known(kind) and not isinstance(kind, pa.BaseExtensionType) and not pa.types.is_nested(kind)


def _is_any(kind: pa.DataType) -> bool:
    return True


def _is_number(kind: pa.DataType) -> bool:
    checks = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal, pa.types.is_null)
    return is_comparable(kind) and any(check(kind) for check in (*checks, pa.types.is_duration))


_AGGREGATES: dict[str, tuple[Check, str]] = {
    **dict.fromkeys(("count", "first", "last"), (_is_any, "any values")),
    **dict.fromkeys(("min", "max", "count_distinct"), (is_comparable, "numbers, texts or dates")),
    **dict.fromkeys(("sum", "mean", "std", "var"), (_is_number, "numbers")),
    **dict.fromkeys(("any", "all"), (lambda kind: bool(pa.types.is_boolean(kind)), "booleans")),
}
_OF_MISSING = ("is_null", "is_valid")
"""The functions of expressions that look at no value."""


def require_key(name: str, kind: pa.DataType) -> None:
    """Refuse a column that rows cannot be sorted, grouped, joined or told apart by."""
    if not is_comparable(kind):
        raise InputError(f"column {name!r} has type {kind}, which cannot be a key. Use numbers, texts or dates.")


def require_aggregate(function: str, name: str, kind: pa.DataType) -> None:
    """Refuse an aggregate that is not defined for a column."""
    check, wanted = _AGGREGATES[function]
    if not check(kind):
        remedy = "" if is_comparable(kind) else " Pass reduce() a function over arrays instead."
        raise InputError(f"{function!r} needs {wanted}, but column {name!r} has type {kind}.{remedy}")


def require_expression(function: str, name: str, kind: pa.DataType) -> None:
    """Refuse a function of expressions over a column that is only carried."""
    if not is_known(kind) and function not in _OF_MISSING:
        raise InputError(
            f"column {name!r} has type {kind}, for which expressions have {' and '.join(_OF_MISSING)} alone. "
            "Pass filter() or map() a function instead."
        )
