"""TableRows: a Table as a map-style dataset, for the samplers and collate functions of torch.

A row is a tuple of its columns, as of torch's TensorDataset: numbers as tensors, everything else (texts, lists, dates)
as Python values. Rows are gathered where they lie; see `trek.data.batching.columns`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from torch.utils.data import Dataset

from trek.data.batching.columns import StoredColumns, stored_rows

if TYPE_CHECKING:
    from trek.data.table import Table


class TableRows(Dataset[tuple[Any, ...]]):
    """The rows of a table by number. Opened at the first row, by each process for itself."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._names = list(table.columns)
        self._numeric = [field.name for field in table.schema if _is_numeric(field.type)]
        self._opened: tuple[StoredColumns | None, pa.Table] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __getitem__(self, row: int) -> tuple[Any, ...]:
        return self.__getitems__([row])[0]

    def __getitems__(self, rows: list[int]) -> list[tuple[Any, ...]]:
        numbers, others = self._open()
        wanted = np.asarray(rows, dtype=np.int64)
        columns: dict[str, Any] = {}
        if numbers is not None:
            columns = dict(zip(self._numeric, numbers.take(wanted), strict=True))
        columns |= {name: others.column(name).take(pa.array(wanted)).to_pylist() for name in others.column_names}
        return list(zip(*(columns[name] for name in self._names), strict=True))

    def _open(self) -> tuple[StoredColumns | None, pa.Table]:
        if self._opened is None:
            rows = stored_rows(self._table)
            numbers = StoredColumns.of(type(self._table).of(rows.select(self._numeric))) if self._numeric else None
            self._opened = numbers, rows.select([name for name in self._names if name not in self._numeric])
        return self._opened


def _is_numeric(kind: pa.DataType) -> bool:
    values = kind.value_type if isinstance(kind, pa.FixedShapeTensorType) else kind
    return any(check(values) for check in (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean))
