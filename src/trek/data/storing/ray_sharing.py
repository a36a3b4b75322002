"""Hand-over on a Ray cluster: rows stay in the object store, where any process that has the Handle reads them.

An actor of the process that shared keeps the references, under a name that the Handle carries. The rows are freed by
`close`, or when that process ends. Processes of one node share one copy of what they read, and must stay connected
while they use it.
"""

from __future__ import annotations

import uuid
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import ray

from trek.data.execution.parts import Part
from trek.data.execution.ray_executor import RayExecutor
from trek.data.execution.ray_objects import RefSegment, put_rows, read_rows
from trek.data.plans.lowering import evaluate
from trek.data.plans.plan import PlanNode
from trek.data.plans.schemas import schema_of
from trek.data.storing.sharing import Handle
from trek.engines.ray.connection import NAMESPACE, connect
from trek.errors import DataUnavailable

_keepers: dict[str, Any] = {}
"""The actors of this process: Ray ends one with the last use of it."""


@dataclass(frozen=True)
class RayHandle(Handle):
    """A name for rows in the store of the cluster at `address`; `path` is the name of the actor that keeps them."""

    address: str = ""

    def close(self) -> None:
        """Free the rows once nobody reads them any more. Safe to call twice."""
        _close(self.path.name)

    def facts(self) -> dict[str, Any]:
        """What `str` writes."""
        return {**super().facts(), "kind": "ray", "address": self.address}

    def read(self) -> pa.Table:
        """The rows, where they are in the store of this node."""
        connect(self.address)
        keeper = self._require_there()
        refs, schema = ray.get(keeper.content.remote())
        batches = [batch for buffer in ray.get(refs) for batch in read_rows(buffer)]
        return pa.Table.from_batches(batches, schema)

    def _require_there(self) -> Any:
        connect(self.address)
        try:
            return ray.get_actor(self.path.name, namespace=NAMESPACE)
        except ValueError as error:
            raise DataUnavailable(
                f"the shared table {self.path.name} no longer exists: its process has ended or closed it."
            ) from error


def share_on_ray(node: PlanNode, executor: RayExecutor) -> RayHandle:
    """Keep the rows of `node` on the cluster, computed now."""
    segments = [segment for part in evaluate(node, executor) for segment in _stored(part)]
    name = f"trek-handle-{uuid.uuid4().hex}"
    kind: Any = ray.remote(_Keeper)
    keeper = kind.options(name=name, namespace=NAMESPACE, num_cpus=0).remote([s.ref for s in segments], schema_of(node))
    ray.get(keeper.content.remote())  # it has the references before ours go
    _keepers[name] = keeper
    rows, nbytes = sum(one.num_rows for one in segments), sum(one.nbytes for one in segments)
    handle = RayHandle(Path(name), rows, nbytes, ray.get_runtime_context().gcs_address)
    weakref.finalize(handle, _close, name)
    return handle


def _stored(part: Part) -> list[RefSegment]:
    """The segments of a part, each an object of its own."""
    return [
        one
        for segment in part.segments
        for one in ([segment] if isinstance(segment, RefSegment) else put_rows(segment.batches()))
    ]


class _Keeper:
    """Holds references, so that the objects live."""

    def __init__(self, refs: list[Any], schema: pa.Schema) -> None:
        self._refs = refs
        self._schema = schema

    def content(self) -> tuple[list[Any], pa.Schema]:
        """What it holds."""
        return self._refs, self._schema


def _close(name: str) -> None:
    _keepers.pop(name, None)
    if not ray.is_initialized():
        return
    try:
        ray.kill(ray.get_actor(name, namespace=NAMESPACE))
    except ValueError:  # it has ended
        return
