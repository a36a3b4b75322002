"""Looking at data: the first rows as text, and figures for every column."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from trek.data import tensors

if TYPE_CHECKING:
    import pandas as pd

_MOST_DISTINCT = 10_000


def render_rows(table: pa.Table) -> str:
    """Rows as aligned text; tensors by type and shape."""
    names = table.column_names
    cells = [[_cell(value) for value in _values(table.column(name))] for name in names]
    widths = [max(len(name), *(len(cell) for cell in column), 1) for name, column in zip(names, cells, strict=True)]
    lines = [names, *(list(row) for row in zip(*cells, strict=True))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)


def describe_batches(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> pd.DataFrame:
    """Figures for every column, from one pass over the batches."""
    import pandas as pd

    figures = {field.name: _Figures(field) for field in schema}
    for batch in batches:
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            figures[name].add(column)
    return pd.DataFrame([figure.row() for figure in figures.values()]).set_index("column")


class _Figures:
    """What is known of one column so far."""

    def __init__(self, field: pa.Field) -> None:
        self.field = field
        self.count = self.missing = self.numbers = 0
        self.mean = self.squares = 0.0
        self.least: Any = None
        self.greatest: Any = None
        self.texts: set[Any] | None = set()

    def add(self, column: pa.Array) -> None:
        self.count += len(column)
        self.missing += column.null_count
        if self._is_number():
            self._add_numbers(tensors.to_numpy(column.drop_null()))
        elif self.texts is not None:
            self.texts.update(column.drop_null().unique().to_pylist() if _is_text(column.type) else ())
            self.texts = self.texts if len(self.texts) <= _MOST_DISTINCT else None

    def row(self) -> dict[str, Any]:
        mean = self.mean if self.numbers else None
        spread = (self.squares / (self.numbers - 1)) ** 0.5 if self.numbers > 1 else None
        return {
            "column": self.field.name,
            "type": tensors.type_name(self.field.type),
            "count": self.count,
            "missing": self.missing,
            "distinct": len(self.texts) if _is_text(self.field.type) and self.texts is not None else None,
            "min": self.least,
            "max": self.greatest,
            "mean": mean,
            "std": spread,
        }

    def _is_number(self) -> bool:
        kind = self.field.type
        kind = kind.value_type if isinstance(kind, pa.FixedShapeTensorType) else kind
        return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))

    def _add_numbers(self, values: np.ndarray) -> None:
        if values.dtype.kind == "f" and (is_nan := np.isnan(values)).any():  # not a number is missing too
            self.missing += int(is_nan.reshape(len(values), -1).any(axis=1).sum())
            values = values[~is_nan]
        if not values.size:
            return
        # Means and squares of differences are put together batch by batch: sums of squares would lose large numbers.
        mean = float(values.mean(dtype=np.float64))
        squares = float(np.square(values.astype(np.float64) - mean).sum())
        apart, before = mean - self.mean, self.numbers
        self.numbers += values.size
        self.mean += apart * values.size / self.numbers
        self.squares += squares + apart**2 * before * values.size / self.numbers
        least, greatest = values.min().item(), values.max().item()
        self.least = least if self.least is None else min(self.least, least)
        self.greatest = greatest if self.greatest is None else max(self.greatest, greatest)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _values(column: pa.ChunkedArray) -> list[Any]:
    if isinstance(column.type, pa.FixedShapeTensorType):
        return list(tensors.to_numpy(column))
    values: list[Any] = column.to_pylist()
    return values


def _cell(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)} mean {value.mean():.3g}"
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."
