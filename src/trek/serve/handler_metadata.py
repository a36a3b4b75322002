"""What a loaded model takes and returns, as plain values in the words of the Open Inference Protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trek.serve.datatypes import datatype_named
from trek.serve.handlers.base import Handler
from trek.serve.tensor_spec import TensorSpec


def describe_handler(handler: Handler) -> dict[str, Any]:
    """Inputs and outputs, None for those that are not known, and whether it answers piece by piece."""
    return {
        "inputs": _describe(handler.inputs),
        "outputs": _describe(handler.outputs),
        "is_stream": handler.is_stream,
    }


def _describe(specs: Sequence[TensorSpec] | None) -> list[dict[str, Any]] | None:
    if specs is None:
        return None
    return [{"name": one.name, "datatype": datatype_named(one.dtype), "shape": [-1, *one.shape]} for one in specs]
