"""Expressions over columns: `trek.col("label") < 10`, kept as a small tree and computed by Arrow batch after batch.

Loads Arrow only when computed, so that `trek.col` costs nothing to import.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trek.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

_SYMBOLS = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "divide": "/",
    "mod": "%",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
    "equal": "==",
    "not_equal": "!=",
    "and_kleene": "&",
    "or_kleene": "|",
}


def col(name: str) -> Expression:
    """The column called `name`, to compare, compute with, and pass to `Table.filter` or `Table.with_columns`."""
    return Expression("column", (name,))


@dataclass(frozen=True, eq=False)
class Expression:
    """A computation over columns that has not happened yet. `function` is the name of an Arrow compute function."""

    function: str
    arguments: tuple[Any, ...]

    def evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        """Compute over the columns of `batch`."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if self.function == "column":
            return _column(batch, self.arguments[0])
        arguments = [a.evaluate(batch) if isinstance(a, Expression) else a for a in self.arguments]
        if self.function == "is_in":
            return pc.is_in(arguments[0], value_set=pa.array(arguments[1]))
        try:
            if self.function == "divide":  # Arrow truncates between integers, Python does not
                arguments = [pc.cast(a, pa.float64()) if _is_integer(a) else a for a in arguments]
            return _remainder(*arguments) if self.function == "mod" else pc.call_function(self.function, arguments)
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
            raise InputError(f"cannot compute {self!r}: {error}.") from error

    @property
    def columns(self) -> set[str]:
        """Names of the columns the expression reads."""
        if self.function == "column":
            return {self.arguments[0]}
        return set().union(*(a.columns for a in self.arguments if isinstance(a, Expression)))

    def is_in(self, values: Sequence[Any]) -> Expression:
        """True where the value is one of `values`."""
        return Expression("is_in", (self, tuple(values)))

    def is_null(self) -> Expression:
        """True where the value is missing."""
        return Expression("is_null", (self,))

    def is_valid(self) -> Expression:
        """True where the value is not missing."""
        return Expression("is_valid", (self,))

    def abs(self) -> Expression:
        """The absolute value."""
        return Expression("abs", (self,))

    def __add__(self, other: Any) -> Expression:
        return Expression("add", (self, other))

    def __radd__(self, other: Any) -> Expression:
        return Expression("add", (other, self))

    def __sub__(self, other: Any) -> Expression:
        return Expression("subtract", (self, other))

    def __rsub__(self, other: Any) -> Expression:
        return Expression("subtract", (other, self))

    def __mul__(self, other: Any) -> Expression:
        return Expression("multiply", (self, other))

    def __rmul__(self, other: Any) -> Expression:
        return Expression("multiply", (other, self))

    def __truediv__(self, other: Any) -> Expression:
        return Expression("divide", (self, other))

    def __rtruediv__(self, other: Any) -> Expression:
        return Expression("divide", (other, self))

    def __mod__(self, other: Any) -> Expression:
        return Expression("mod", (self, other))

    def __neg__(self) -> Expression:
        return Expression("negate", (self,))

    def __lt__(self, other: Any) -> Expression:
        return Expression("less", (self, other))

    def __le__(self, other: Any) -> Expression:
        return Expression("less_equal", (self, other))

    def __gt__(self, other: Any) -> Expression:
        return Expression("greater", (self, other))

    def __ge__(self, other: Any) -> Expression:
        return Expression("greater_equal", (self, other))

    def __eq__(self, other: object) -> Expression:  # type: ignore[override]
        return Expression("equal", (self, self._present(other)))

    def __ne__(self, other: object) -> Expression:  # type: ignore[override]
        return Expression("not_equal", (self, self._present(other)))

    def __and__(self, other: Any) -> Expression:
        return Expression("and_kleene", (self, other))

    def __or__(self, other: Any) -> Expression:
        return Expression("or_kleene", (self, other))

    def __invert__(self) -> Expression:
        return Expression("invert", (self,))

    def _present(self, other: Any) -> Any:
        if other is None:
            raise InputError(f"a comparison with None is never true. Use {self!r}.is_null() or .is_valid().")
        return other

    __hash__ = None  # type: ignore[assignment]  # `==` builds an Expression, so equality cannot be asked

    def __bool__(self) -> bool:
        raise InputError(
            f"{self!r} has no truth value before it is computed. Combine conditions with & and |, not `and`/`or`."
        )

    def __repr__(self) -> str:
        if self.function == "column":
            return f"col({self.arguments[0]!r})"
        if self.function in _SYMBOLS:
            left, right = self.arguments
            return f"({left!r} {_SYMBOLS[self.function]} {right!r})"
        return f"{self.function}({', '.join(repr(a) for a in self.arguments)})"


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    if name not in batch.schema.names:
        raise InputError(f"column {name!r} does not exist. There are: {', '.join(batch.schema.names)}.")
    return batch.column(batch.schema.names.index(name))


def _remainder(value: Any, divisor: Any) -> Any:
    """What is left of a division, with the sign of the divisor, as Python has it."""
    import pyarrow.compute as pc

    whole = pc.divide(value, divisor)
    left = pc.subtract(value, pc.multiply(whole if _is_integer(whole) else pc.trunc(whole), divisor))
    is_other_side = pc.and_(pc.not_equal(left, 0), pc.not_equal(pc.less(left, 0), pc.less(divisor, 0)))
    return pc.if_else(is_other_side, pc.add(left, divisor), left)


def _is_integer(value: Any) -> bool:
    import pyarrow as pa

    return isinstance(value, int) or (isinstance(value, pa.Array) and pa.types.is_integer(value.type))
