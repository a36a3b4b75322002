"""Compute: a step that runs a function over a whole partition, with the columns of other tables beside it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from trek.data import tensors
from trek.data.plans.conforming import settled
from trek.data.plans.plan import Context, PartitionStep, PlanNode, Stream
from trek.data.plans.steps import arrays_of, call, failure, to_batch
from trek.errors import TrekError
from trek.fingerprints import source_name


class Compute(PartitionStep):
    """A function over a whole partition: `f(batches, context)`, which yields batches (dicts of arrays)."""

    def __init__(self, node: PlanNode, function: Callable[..., Any], *, side_nodes: Mapping[str, PlanNode]) -> None:
        super().__init__(node)
        self.function = function
        self.side_nodes = dict(side_nodes)
        self.inputs = (node, *self.side_nodes.values())

    def describe(self) -> str:
        """One line for `explain`."""
        beside = f" with {', '.join(self.side_nodes)}" if self.side_nodes else ""
        return f"compute {source_name(self.function)}{beside}"

    def identity(self) -> Any:
        """The function and the names of its side inputs, in the order of the inputs."""
        return (self.function, list(self.side_nodes))

    def with_side_input(self, name: str, node: PlanNode) -> Compute:
        """The same with one more side input."""
        return Compute(self.inputs[0], self.function, side_nodes={**self.side_nodes, name: node})

    def side_inputs(self, executor: Any) -> Mapping[str, Any]:
        """Every side input as a dict of arrays, computed once."""
        return {name: _columns_of(node, executor) for name, node in self.side_nodes.items()}

    def detached(self) -> PartitionStep:
        """Without the plans of the side inputs either."""
        step = super().detached()
        assert isinstance(step, Compute)
        step.side_nodes = {}
        return step

    def apply(self, batches: Stream, context: Context) -> Stream:
        """What the function yields, or returns, for the partition."""
        where = f"{self.describe()}, partition {context.index}"
        results = self._run((arrays_of(batch) for batch in batches), context, where)
        if results is None:
            return iter(())
        listed = [results] if isinstance(results, dict) else _guarded(results, where)
        place = f"partition {context.index}"
        return settled(((to_batch(result, where=where), place) for result in listed), title=self.describe())

    def _run(self, inputs: Iterator[Any], context: Context, where: str) -> Any:
        if not _takes_collector(self.function):
            return call(self.function, inputs, context, where=where)
        collector = Collector()
        call(self.function, inputs, collector, context, where=where)
        return collector.collected


class Collector:
    """Collects batches of a function of `compute` that does not yield them; held until the partition is done."""

    def __init__(self) -> None:
        self.collected: list[Any] = []

    def collect(self, batch: Any) -> None:
        """Add a batch, a dict of arrays."""
        self.collected.append(batch)


def _takes_collector(function: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # written in C
        return False
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in kinds and p.default is p.empty for p in parameters) == 3


def _guarded(results: Any, where: str) -> Iterator[Any]:
    iterator = iter(results)
    while True:
        try:
            result = next(iterator)
        except StopIteration:
            return
        except TrekError:
            raise
        except Exception as error:
            raise failure(error, where) from error
        yield result


def _columns_of(node: PlanNode, executor: Any) -> dict[str, np.ndarray]:
    batches = [batch for piece in node.pieces(executor) for batch in piece.batches()]
    table = pa.Table.from_batches(batches) if batches else pa.table({})
    return {name: tensors.to_numpy(table.column(name)) for name in table.column_names}
