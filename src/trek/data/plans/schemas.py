"""The columns of a plan: known from its nodes, or found by computing as few rows as possible."""

from __future__ import annotations

from contextlib import ExitStack

import pyarrow as pa

from trek.data.execution import current_executor
from trek.data.plans.conforming import HELD_ROWS, is_settled, merged_schema
from trek.data.plans.plan import PlanNode, sources


def schema_of(node: PlanNode) -> pa.Schema:
    """Names and types of the columns; behind a function they are found by running it on the first batch."""
    if node.schema is None and node.derives_schema:
        for child in node.inputs:
            schema_of(child)
    schema = node.schema or _first_schema(node)
    node.learn_schema(schema)
    return schema


def is_schema_known(node: PlanNode) -> bool:
    """Whether the columns can be told without running a function."""
    return node.schema is not None or (node.derives_schema and all(is_schema_known(child) for child in node.inputs))


def _first_schema(node: PlanNode) -> pa.Schema:
    with ExitStack() as peeks:
        for source in sources(node):
            peeks.enter_context(source.peeking())
        schema = _peeked_schema(node)
    return schema or node.schema_without_rows() or pa.schema([])


def _peeked_schema(node: PlanNode) -> pa.Schema | None:
    """The columns of the first batch; of later ones too where a type is not known from it."""
    from trek.data.plans.exchanges import reads_stream

    schema, rows = None, 0
    for batch in (batch for piece in node.pieces(current_executor()) for batch in piece.batches()):
        schema = merged_schema(schema or batch.schema, batch.schema)
        rows += batch.num_rows
        if is_settled(schema) or (rows > HELD_ROWS and reads_stream(node)):
            break
    return schema
