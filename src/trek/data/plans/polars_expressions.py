"""Expressions as Polars computes them, with the meaning that Python gives them.

Integers and floats are compared exactly, whatever their size. A NaN equals nothing and is neither less nor greater. `%`
has the sign of the divisor, and `/` between integers is a true division. Missing values stay missing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from trek.data.execution.polars_engine import first_line, load_polars, polars_errors
from trek.data.plans.capabilities import require_expression
from trek.data.plans.expressions import Expression
from trek.data.plans.polars_types import Carrier, arrow_type, empty_frame, to_arrow, to_polars
from trek.data.tensors import to_column
from trek.errors import InputError

load_polars()  # with the number of threads of this process, before anything else imports it
import polars as pl  # noqa: E402

_ARITHMETIC = ("add", "subtract", "multiply", "divide", "mod")
_MIRRORED = {"less": "greater", "less_equal": "greater_equal", "greater": "less", "greater_equal": "less_equal"}
_OPERATORS: dict[str, Callable[[Any, Any], pl.Expr]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "divide": lambda a, b: a / b,
    "less": lambda a, b: a < b,
    "less_equal": lambda a, b: a <= b,
    "greater": lambda a, b: a > b,
    "greater_equal": lambda a, b: a >= b,
    "equal": lambda a, b: a == b,
    "not_equal": lambda a, b: a != b,
    "and_kleene": lambda a, b: a & b,
    "or_kleene": lambda a, b: a | b,
}
_SINGLE: dict[str, Callable[[Any], pl.Expr]] = {
    "is_null": lambda a: a.is_null(),
    "is_valid": lambda a: a.is_not_null(),
    "abs": lambda a: a.abs(),
    "negate": lambda a: -a,
    "invert": lambda a: ~a,
}
_EXACT_BOUND = 2.0**65  # beyond every integer of 64 bits, and a float


class Translation:
    """Expressions over the columns of one schema as expressions of Polars, checked against the columns' types."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._empty = empty_frame(schema).lazy()

    def translate(self, expression: Expression) -> pl.Expr:
        """`expression` in Polars' terms; an error says which part makes no sense."""
        translated = self._translate(expression)
        if self.dtype(translated, expression) == pl.Int128:  # of an unsigned and a signed column
            translated = translated.cast(pl.Int64)
        return translated

    def dtype(self, translated: pl.Expr, expression: Expression) -> pl.DataType:
        """The type of what comes out."""
        try:
            schema = self._empty.select(translated.alias("x")).collect_schema()
        except pl.exceptions.PolarsError as error:
            raise InputError(f"cannot compute {expression!r}: {first_line(error)}.") from error
        return schema["x"]

    def _translate(self, expression: Expression) -> pl.Expr:
        function, arguments = expression.function, expression.arguments
        if function == "column":
            return self._column(arguments[0], function)
        if function == "is_in":
            return self._is_in(expression, *arguments)
        if function == "cast":
            return self._cast(self._translate(arguments[0]), arguments[1])
        if function in _SINGLE:
            argument = arguments[0]
            is_column = argument.function == "column"
            return _SINGLE[function](
                self._column(argument.arguments[0], function) if is_column else self._translate(argument)
            )
        if function in ("and_kleene", "or_kleene"):
            return _OPERATORS[function](*(self._condition(argument) for argument in arguments))
        if function in _ARITHMETIC:
            return self._arithmetic(expression)
        return self._comparison(expression)

    def _column(self, name: str, function: str) -> pl.Expr:
        names = self._schema.names
        if name not in names:
            raise InputError(f"column {name!r} does not exist. There are: {', '.join(names)}.")
        require_expression(function, name, self._schema.field(name).type)
        return pl.col(name)

    def _condition(self, argument: Any) -> pl.Expr:
        return self._translate(argument) if isinstance(argument, Expression) else pl.lit(argument)

    def _cast(self, value: pl.Expr, kind: pa.DataType) -> pl.Expr:
        return value.cast(empty_frame(pa.schema([("x", kind)])).schema["x"])

    def _arithmetic(self, expression: Expression) -> pl.Expr:
        left, right = self._operands(expression)
        kinds = [self.dtype(side, expression) for side in (left, right)]
        if expression.function == "mod":
            return self._remainder(left, right, kinds)
        if expression.function == "divide":
            return left.cast(pl.Float64) / right if all(map(_is_integer, kinds)) else left / right
        result = _OPERATORS[expression.function](left, right)
        is_large = pl.UInt64 in kinds and self._is_natural(expression)
        return result.cast(pl.UInt64) if is_large else result

    def _is_natural(self, expression: Expression) -> bool:
        """Whether the other operand of an unsigned column is a plain number that an unsigned one can hold."""
        numbers = [a for a in expression.arguments if not isinstance(a, Expression)]
        return bool(numbers) and isinstance(numbers[0], int) and numbers[0] >= 0

    def _operands(self, expression: Expression) -> tuple[pl.Expr, pl.Expr]:
        known = {
            index: self._translate(argument)
            for index, argument in enumerate(expression.arguments)
            if isinstance(argument, Expression)
        }
        kind = self.dtype(next(iter(known.values())), expression)
        left, right = (
            known[index] if index in known else self._literal(argument, kind, expression)
            for index, argument in enumerate(expression.arguments)
        )
        return left, right

    def _literal(self, value: Any, beside: pl.DataType, expression: Expression) -> pl.Expr:
        """A plain value, typed as Arrow types it: 64 bits, or the float type of the column beside it."""
        value = _plain(value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return pl.lit(value)
        if isinstance(value, int) and beside.is_float():
            return pl.lit(float(value), dtype=beside)
        if isinstance(value, float):
            return pl.lit(value, dtype=pl.Float64)
        if not -(2**63) <= value < 2**64:
            raise InputError(f"cannot compute {expression!r}: {value} does not fit in an integer of 64 bits.")
        return pl.lit(value, dtype=pl.Int64 if value < 2**63 else pl.UInt64)

    def _remainder(self, value: pl.Expr, divisor: pl.Expr, kinds: Sequence[pl.DataType]) -> pl.Expr:
        """NumPy's, which is Python's: Polars' own is a difference of products, and loses what floats cannot hold."""
        if not all(one.is_numeric() for one in kinds):
            return value % divisor  # refused by Polars, with its own words
        both = pl.struct(value.alias("value"), divisor.alias("divisor"))
        kind = self._empty.select((value + divisor).alias("x")).collect_schema()["x"]
        kind = pl.Int64() if kind == pl.Int128 else kind
        return both.map_batches(partial(_remainders, kind=kind), return_dtype=kind, is_elementwise=True)

    # -- comparisons -------------------------------------------------------------------------------------------------

    def _comparison(self, expression: Expression) -> pl.Expr:
        left, right = expression.arguments
        if not isinstance(left, Expression):
            return self._comparison(Expression(_mirrored(expression.function), (right, left)))
        column = self._translate(left)
        kind = self.dtype(column, expression)
        if not isinstance(right, Expression):
            return self._with_literal(expression.function, column, kind, _plain(right))
        other = self._translate(right)
        return self._with_column(expression.function, column, kind, other, self.dtype(other, expression))

    def _with_literal(self, function: str, column: pl.Expr, kind: pl.DataType, value: Any) -> pl.Expr:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not kind.is_numeric() or kind.is_decimal():
            return _OPERATORS[function](column, pl.lit(value))
        if isinstance(value, float) and math.isnan(value):
            return self._always(column, function == "not_equal")
        function, bound = _exact_bound(function, value, is_integer=kind.is_integer())
        if bound is None:
            return self._always(column, function == "not_equal")
        if kind.is_integer():
            return self._integer_with_bound(function, column, bound)
        found = _OPERATORS[function](column, pl.lit(float(bound), dtype=pl.Float64))
        return found & column.is_not_nan() if function in ("greater", "greater_equal") else found

    def _integer_with_bound(self, function: str, column: pl.Expr, bound: float) -> pl.Expr:
        if not -(2**63) <= bound < 2**64:
            is_above = bound > 0
            answers = {"equal": False, "not_equal": True, "less": is_above, "less_equal": is_above}
            return self._always(column, answers.get(function, not is_above))
        dtype = pl.Int64 if bound < 2**63 else pl.UInt64
        return _OPERATORS[function](column, pl.lit(int(bound), dtype=dtype))

    def _always(self, column: pl.Expr, answer: bool) -> pl.Expr:
        """The same answer wherever there is a value."""
        return pl.when(column.is_not_null()).then(pl.lit(answer))

    def _where_present(self, found: pl.Expr, left: pl.Expr, right: pl.Expr) -> pl.Expr:
        """Missing where either side is: of "missing and false", Polars makes false."""
        return pl.when(left.is_not_null() & right.is_not_null()).then(found)

    def _with_column(
        self, function: str, left: pl.Expr, left_kind: pl.DataType, right: pl.Expr, right_kind: pl.DataType
    ) -> pl.Expr:
        if _is_wide_integer(left_kind) and right_kind.is_float():
            return self._wide_with_float(function, left, right)
        if left_kind.is_float() and _is_wide_integer(right_kind):
            return self._wide_with_float(_mirrored(function), right, left)
        found = _OPERATORS[function](left, right)
        for side, kind, ordered in ((left, left_kind, "greater"), (right, right_kind, "less")):
            if not kind.is_float():
                continue
            if function == "not_equal":
                found = found | side.is_nan()
            elif function == "equal" or function.startswith(ordered):
                found = found & side.is_not_nan()
        return self._where_present(found, left, right) if left_kind.is_float() or right_kind.is_float() else found

    def _wide_with_float(self, function: str, integer: pl.Expr, number: pl.Expr) -> pl.Expr:
        """Exact where a float cannot hold the integer: compared with the whole number below, then with the rest."""
        bounded = number.cast(pl.Float64).fill_nan(0.0).clip(-_EXACT_BOUND, _EXACT_BOUND)
        whole, value = bounded.floor().cast(pl.Int128), integer.cast(pl.Int128)
        is_whole = bounded.floor() == bounded
        found = {
            "less": (value < whole) | ((value == whole) & ~is_whole),
            "less_equal": value <= whole,
            "greater": value > whole,
            "greater_equal": (value > whole) | ((value == whole) & is_whole),
            "equal": (value == whole) & is_whole,
            "not_equal": (value != whole) | ~is_whole,
        }[function]
        found = found | number.is_nan() if function == "not_equal" else found & number.is_not_nan()
        return self._where_present(found, integer, number)

    def _is_in(self, expression: Expression, argument: Expression, values: Sequence[Any]) -> pl.Expr:
        column = self._translate(argument)
        kind = self.dtype(column, expression)
        wanted = [_plain(value) for value in values if value is not None]
        _require_alike(wanted, kind, expression)
        if kind.is_integer():
            wanted = [int(v) for v in wanted if _is_whole(v) and _fits(int(v), kind)]
        if kind.is_float():
            wanted = [float(v) for v in wanted if _is_float(v)]
        try:
            listed = pl.Series(wanted, dtype=kind, strict=True) if wanted else pl.Series([], dtype=kind)
        except (TypeError, pl.exceptions.PolarsError) as error:
            raise InputError(f"cannot compute {expression!r}: {first_line(error)}.") from error
        found = column.is_in(listed.implode()).fill_null(False)
        return found | column.is_null() if None in values else found


class Computation:
    """Named expressions over batches of one schema: for what is computed batch by batch, such as streams."""

    def __init__(self, expressions: Mapping[str, Expression], schema: pa.Schema) -> None:
        self._used = sorted({name for expression in expressions.values() for name in expression.columns})
        self._title = ", ".join(map(repr, expressions.values()))
        missing = [name for name in self._used if name not in schema.names]
        if missing:
            raise InputError(f"column {missing[0]!r} does not exist. There are: {', '.join(schema.names)}.")
        translation = Translation(pa.schema([schema.field(name) for name in self._used]))
        self._translated = [translation.translate(e).alias(name) for name, e in expressions.items()]
        kinds = [translation.dtype(t, e) for t, e in zip(self._translated, expressions.values(), strict=True)]
        self.schema = pa.schema([(name, arrow_type(kind)) for name, kind in zip(expressions, kinds, strict=True)])

    def __call__(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """The columns, in order."""
        carrier = Carrier()
        with polars_errors(self._title):
            frame = to_polars(pa.Table.from_batches([batch.select(self._used)]), carrier)
            found = to_arrow(frame.select(self._translated), self.schema, carrier)
        return [to_column(column, name="") for column in pa.Table.from_batches(found, self.schema).columns]


def _exact_bound(function: str, value: float, *, is_integer: bool) -> tuple[str, float | None]:
    """The comparison with a number that values of the column's kind can equal; None where none equals `value`."""
    if is_integer:
        return _whole_bound(function, value)
    if type(value) is float:
        return function, value
    try:
        near = float(value)
    except OverflowError:
        near = math.inf if value > 0 else -math.inf
    if near == value:
        return function, near
    if function in ("equal", "not_equal"):
        return function, None
    if function.startswith("less"):
        return ("less" if near > value else "less_equal"), near
    return ("greater_equal" if near > value else "greater"), near


def _whole_bound(function: str, value: float) -> tuple[str, float | None]:
    if isinstance(value, int) or math.isinf(value) or value == math.floor(value):
        return function, value if isinstance(value, int) or math.isinf(value) else int(value)
    if function in ("equal", "not_equal"):
        return function, None
    below = math.floor(value)
    return ("less_equal" if function.startswith("less") else "greater"), below


def _mirrored(function: str) -> str:
    return _MIRRORED.get(function, function)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _is_integer(kind: pl.DataType) -> bool:
    return kind.is_integer()


def _is_wide_integer(kind: pl.DataType) -> bool:
    return kind in (pl.Int64, pl.UInt64, pl.Int128)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) or (isinstance(value, float) and math.isfinite(value) and value == math.floor(value))


def _is_float(value: Any) -> bool:
    """Whether a float equals `value`."""
    try:
        return isinstance(value, float) or float(value) == value
    except OverflowError:
        return False


def _fits(value: int, kind: pl.DataType) -> bool:
    bits = int("".join(filter(str.isdigit, str(kind))))
    return -(1 << bits - 1) <= value < 1 << bits - 1 if kind.is_signed_integer() else 0 <= value < 1 << bits


def _require_alike(values: Sequence[Any], kind: pl.DataType, expression: Expression) -> None:
    """Refuse texts for a column of numbers, and numbers for one of texts: they equal nothing."""
    is_text = kind in (pl.String, pl.Categorical, pl.Enum)
    for value in values:
        if (kind.is_numeric() and not isinstance(value, int | float)) or (is_text and not isinstance(value, str)):
            raise InputError(
                f"cannot compute {expression!r}: the column has type {kind}, but {value!r} is of {type(value)}. "
                "Convert the values, or the column with cast()."
            )


def _remainders(both: pl.Series, *, kind: pl.DataType) -> pl.Series:
    fields = both.struct.unnest()
    value, divisor = fields["value"], fields["divisor"]
    is_missing = (value.is_null() | divisor.is_null()).to_numpy()
    dtype = np.float64 if kind.is_float() else np.int64 if kind.is_signed_integer() else np.uint64
    numbers = [side.fill_null(1).to_numpy().astype(dtype) for side in (value, divisor)]
    if not kind.is_float() and not numbers[1].all():
        raise InputError("an integer % 0 is not defined. Filter the zeros out first.")
    with np.errstate(invalid="ignore"):  # a float % 0 is NaN
        left = np.remainder(*numbers)
    found = pl.Series(left).cast(kind)
    return found if not is_missing.any() else found.zip_with(pl.Series(~is_missing), pl.Series([None], dtype=kind))
