"""Expressions over columns: `trek.col("label") < 10`, kept as a small tree until Polars computes them.

What they mean is in `polars_expressions`, loaded only when one is computed: `trek.col` costs nothing to import.
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
    """A computation over columns that has not happened yet."""

    function: str
    arguments: tuple[Any, ...]

    def evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        """Compute over the columns of `batch`."""
        from trek.data.plans.polars_expressions import Computation

        return Computation({"value": self}, batch.schema)(batch)[0]

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

    def cast(self, kind: str | pa.DataType) -> Expression:
        """The values as another type: `cast("int32")`. Fractions are cut off.

        One that does not fit in an integer type is an error; in a smaller float type, it is infinite.
        """
        return Expression("cast", (self, parse_type(kind)))

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

    def __rmod__(self, other: Any) -> Expression:
        return Expression("mod", (other, self))

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
        if self.function == "cast":
            return f"{self.arguments[0]!r}.cast({str(self.arguments[1])!r})"
        if self.function in _SYMBOLS:
            left, right = self.arguments
            return f"({left!r} {_SYMBOLS[self.function]} {right!r})"
        return f"{self.function}({', '.join(repr(a) for a in self.arguments)})"


def parse_type(kind: str | pa.DataType) -> pa.DataType:
    """An Arrow type, by its name where it is a text."""
    import pyarrow as pa

    if isinstance(kind, pa.DataType):
        return kind
    try:
        return pa.type_for_alias(kind)
    except (ValueError, TypeError) as error:
        raise InputError(f"{kind!r} is not a valid type. Use one such as 'float64', 'int32' or 'string'.") from error
