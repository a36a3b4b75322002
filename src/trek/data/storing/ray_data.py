"""Doors between Tables and Ray Data: rows pass from one to the other on the nodes, and never through this process.

Tensors are Arrow's fixed-shape tensors here, and Ray's own extension type there.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import cloudpickle
import pyarrow as pa
import ray
import ray.data

from trek.data import tensors
from trek.data.execution.base import Executor
from trek.data.execution.parts import Part, Readable
from trek.data.execution.ray_executor import RayExecutor
from trek.data.execution.ray_objects import Packer, RefSegment, RowWriter, unpack
from trek.data.plans.lowering import evaluate
from trek.data.plans.plan import PlanNode, Source, Stream
from trek.data.plans.schemas import schema_of
from trek.data.sources.memory import BATCH_ROWS
from trek.engines.ray.connection import connect
from trek.errors import InputError

if TYPE_CHECKING:
    from ray.data import Dataset


def to_ray_data(node: PlanNode, executor: Executor) -> Dataset:
    """The rows of `node` as a dataset of Ray Data, a block for each partition; computed now, on Ray."""
    if not isinstance(executor, RayExecutor):
        executor = RayExecutor(memory_limit_bytes=executor.memory_limit_bytes)
    packer, schema = Packer(), schema_of(node)
    packages = [packer.pack((part, schema)) for part in evaluate(node, executor)]
    blocks = [_to_block.remote(package.message, *package.refs) for package in packages]
    return ray.data.from_arrow_refs(blocks)


def open_ray_data(dataset: Dataset) -> RayDataSource:
    """The rows of a dataset of Ray Data, which is computed now; a partition for each block."""
    from ray.data import Dataset

    if not isinstance(dataset, Dataset):
        raise InputError(f"from_ray_data() needs a dataset of Ray Data, got {type(dataset).__name__}.")
    connect(None)
    converted: list[Any] = [_from_block.remote(block) for block in dataset.to_arrow_refs()]
    parts, schemas = [], []
    for answer, rows in converted:
        num_rows, nbytes, schema = cloudpickle.loads(ray.get(answer))
        parts.append(Part((RefSegment(rows, num_rows=num_rows, nbytes=nbytes),)))
        schemas.append(schema)
    if not schemas:
        raise InputError("from_ray_data() got a dataset without blocks, whose columns are unknown.")
    return RayDataSource(parts, schemas[0])


class RayDataSource(Source):
    """Rows that are in the object store of Ray."""

    def __init__(self, parts: list[Part], schema: pa.Schema) -> None:
        self._parts = parts
        self._schema = schema
        self._name = uuid.uuid4().hex

    @property
    def num_partitions(self) -> int:
        """One for each block."""
        return len(self._parts)

    @property
    def num_rows(self) -> int:
        """Rows of all blocks."""
        return sum(part.num_rows for part in self._parts)

    @property
    def schema(self) -> pa.Schema:
        """As the first block has it."""
        return self._schema

    def describe(self) -> str:
        """One line for `explain`."""
        return "Ray Data"

    def identity(self) -> Any:
        """A name, since the content is not known: each dataset counts as another one."""
        return self._name

    def pieces(self, executor: Executor) -> list[Readable]:
        """The objects, which tasks on Ray read where they are."""
        return list(self._parts)

    def read(self, index: int) -> Stream:
        """The rows of a block."""
        return self._parts[index].batches()


@ray.remote
def _to_block(message: bytes, *arguments: Any) -> pa.Table:
    part, schema = unpack(message, arguments)
    table = pa.Table.from_batches(list(part.batches()), schema)
    columns = [_to_ray_tensors(column) for column in table.columns]
    return pa.table(columns, names=table.column_names)


def _to_ray_tensors(column: pa.ChunkedArray) -> Any:
    from ray.data.extensions import ArrowTensorArray

    if not isinstance(column.type, pa.FixedShapeTensorType) or not len(column):
        return column
    return ArrowTensorArray.from_numpy(tensors.to_numpy(column))


@ray.remote(num_returns=2)
def _from_block(block: pa.Table) -> tuple[bytes, pa.Buffer]:
    table = pa.table([_from_ray_tensors(column) for column in block.columns], names=block.column_names)
    writer = RowWriter()
    for batch in table.to_batches(max_chunksize=BATCH_ROWS) or [pa.RecordBatch.from_pylist([], table.schema)]:
        writer.append(batch)
    buffer, num_rows, nbytes = writer.finish()
    return cloudpickle.dumps((num_rows, nbytes, table.schema)), buffer


def _from_ray_tensors(column: pa.ChunkedArray) -> Any:
    from ray.data.extensions import ArrowTensorType, ArrowTensorTypeV2

    if not isinstance(column.type, ArrowTensorType | ArrowTensorTypeV2):
        return column
    array = column.combine_chunks()
    array = array.chunk(0) if isinstance(array, pa.ChunkedArray) else array
    return tensors.to_column(array.to_numpy_ndarray(), name="tensors")
