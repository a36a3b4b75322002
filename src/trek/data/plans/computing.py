"""Computing expressions: in a query of Polars, or batch by batch where rows are not Polars' to scan.

Loads Polars only when something is computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from trek.data.execution.fresh_process import in_fresh_process
from trek.data.execution.polars_engine import is_usable
from trek.data.plans.expressions import Expression
from trek.data.tensors import to_column

if TYPE_CHECKING:
    import polars as pl

    from trek.data.plans.polars_expressions import Computation

Expressions = Mapping[str, Expression]


def translate(expressions: Expressions, schema: pa.Schema) -> list[pl.Expr]:
    """Named expressions over the columns of `schema` for a query of Polars."""
    from trek.data.plans.polars_expressions import Translation

    if not expressions:
        return []
    translation = Translation(schema)
    return [translation.translate(expression).alias(name) for name, expression in expressions.items()]


def computed_types(expressions: Expressions, schema: pa.Schema) -> dict[str, pa.DataType]:
    """The types of what the expressions give."""
    from trek.data.plans.polars_expressions import Computation

    return {field.name: field.type for field in Computation(expressions, schema).schema} if expressions else {}


def column_as(source: str, name: str) -> pl.Expr:
    """A column under a new name."""
    import polars

    return polars.col(source).alias(name)


class Once:
    """Computes expressions over one batch after the other; they are prepared with the first."""

    def __init__(self) -> None:
        self._prepared: Computation | None = None

    def compute(self, expressions: Expressions, batch: pa.RecordBatch) -> list[pa.Array]:
        """The columns that the expressions give for `batch`."""
        if not expressions:
            return []
        if not is_usable():
            used = sorted({name for expression in expressions.values() for name in expression.columns})
            table = pa.Table.from_batches([batch.select(used)])
            found = in_fresh_process(partial(_computed, expressions=expressions), table)
            return [to_column(column, name="") for column in found.columns]
        if self._prepared is None:
            from trek.data.plans.polars_expressions import Computation

            self._prepared = Computation(expressions, batch.schema)
        return self._prepared(batch)


def _computed(table: pa.Table, *, expressions: Expressions) -> pa.Table:
    (batch,) = table.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]
    return pa.table(dict(zip(expressions, Once().compute(expressions, batch), strict=True)))
