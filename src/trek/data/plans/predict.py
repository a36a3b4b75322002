"""Inference over data: a step that runs a model over batches and adds its outputs as columns.

Knows nothing of how models are trained or saved: it takes a module, a function that makes one, or anything with
`load_model()`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import torch
from torch import nn

from trek.data import tensors
from trek.data.plans.conforming import conform
from trek.data.plans.plan import Context, PartitionStep, PlanNode, Stream
from trek.data.plans.steps import call, numbered, schema_of_no_rows
from trek.errors import InputError
from trek.fingerprints import source_name


class Predict(PartitionStep):
    """Runs a model over a partition's rows, `batch_size` at a time, without gradients and in evaluation mode."""

    is_by_row = True

    def __init__(
        self, node: PlanNode, model: Any, *, columns: Sequence[str], output: str, batch_size: int, device: str
    ) -> None:
        super().__init__(node)
        if batch_size < 1:
            raise InputError(f"batch_size must be at least 1, got {batch_size}.")
        if not callable(model) and not hasattr(model, "load_model"):
            raise InputError(
                f"predict() needs a model, a function or a checkpoint, got {type(model).__name__} {model!r:.60}. "
                "For the path of a checkpoint, pass trek.Checkpoint(path)."
            )
        self.model = model
        self.columns = list(columns)
        self.output = output
        self.batch_size = batch_size
        self.device = device

    @property
    def num_rows(self) -> int | None:
        """As many as before."""
        return self.inputs[0].num_rows

    def describe(self) -> str:
        """One line for `explain`."""
        name = source_name(self.model) if callable(self.model) else repr(self.model)
        return f"predict {name}"

    def identity(self) -> Any:
        """The model with its weights, and what it sees."""
        return (self.model, self.columns, self.output, self.batch_size)

    def apply(self, batches: Stream, context: Context) -> Stream:
        """The rows, followed by the model's columns."""
        run = _load(self.model, self.device)
        schema = None
        for batch, rows in numbered(_pieces(batches, self.batch_size), context):
            where = f"{self.describe()}, {rows}"
            result = self._add(batch, run, where)
            schema = schema or result.schema
            yield conform(result, schema, where=where)

    def schema_without_rows(self) -> pa.Schema | None:
        """The input's columns and what the model gives for no rows, if it can."""
        run = _load(self.model, self.device)
        return schema_of_no_rows(self.inputs[0], lambda batch: self._add(batch, run, self.describe()))

    def _add(self, batch: pa.RecordBatch, run: Callable[..., Any], where: str) -> pa.RecordBatch:
        inputs = [tensors.to_torch(batch.column(name), name=name).to(self.device) for name in self.columns]
        with torch.inference_mode():
            answer = call(run, *inputs, where=where)
        outputs = answer if isinstance(answer, Mapping) else {self.output: answer}
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        for name, values in outputs.items():
            column = tensors.to_column(values, name=name)
            if len(column) != batch.num_rows:
                raise InputError(
                    f"{where}: the model returned {len(column)} values of {name!r} for {batch.num_rows} rows."
                )
            columns[name] = column
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _load(model: Any, device: str) -> Callable[..., Any]:
    if hasattr(model, "load_model"):
        model = model.load_model()
    elif isinstance(model, type) or _takes_nothing(model):
        model = model()
    if not callable(model):
        raise InputError(f"predict() needs a model to call, got {type(model).__name__}.")
    return _for_inference(model, device) if isinstance(model, nn.Module) else model


def _for_inference(model: nn.Module, device: str) -> nn.Module:
    """A copy on `device`, in evaluation mode: the user's own may be in training. Weights there already are shared."""
    weights = [*model.parameters(), *model.buffers()]
    is_there = all(tensor.device == torch.device(device) for tensor in weights)
    return copy.deepcopy(model, {id(tensor): tensor for tensor in weights} if is_there else None).to(device).eval()


def _takes_nothing(model: Any) -> bool:
    code = getattr(model, "__code__", None)
    return code is not None and code.co_argcount == 0 and not code.co_flags & 0x04  # no *args either


def _pieces(batches: Stream, num_rows: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for start in range(0, batch.num_rows, num_rows):
            yield batch.slice(start, num_rows)
