"""FunctionHandler: `module:function`, which takes arrays by name and returns arrays by name.

A function that yields is a stream. A class, or a function without parameters, is called once and makes what answers. A
torch module is called with tensors, in evaluation mode. torch is loaded only if the function's own code does so.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from trek.errors import InputError
from trek.serve.handlers.base import Arrays, Handler, check_rows
from trek.serve.handlers.model_code import import_object
from trek.serve.handlers.torch_values import to_arrays, to_tensor
from trek.serve.model_source import ModelSource
from trek.world.devices import choose_device


class FunctionHandler(Handler):
    """A function of arrays."""

    def __init__(self, function: Callable[..., Any], *, device: Any = None) -> None:
        """`device` is that of a torch module; None for any other function."""
        self._function = function
        self._device = device
        called: Any = function if device is None else function.forward  # type: ignore[attr-defined]
        self._parameters, self._takes_any = _parameters(called)
        self.is_stream = inspect.isgeneratorfunction(inspect.unwrap(called)) or inspect.isgeneratorfunction(
            getattr(called, "__call__", None)  # noqa: B004 - of an instance
        )

    @classmethod
    def open(cls, source: ModelSource, *, device: str, number: int = 0) -> Handler:
        """Import the function, and call it if it makes what answers."""
        found = import_object(source.address, Path(source.code))
        if isinstance(found, type) or (inspect.isfunction(found) and not inspect.signature(found).parameters):
            found = _make(found, source.address)
        if isinstance(found, Handler):
            return found
        if not callable(found):
            raise InputError(f"{source.address!r} is not a function or a model, but {type(found).__name__}.")
        torch = sys.modules.get("torch")
        if torch is None or not isinstance(found, torch.nn.Module):
            return cls(found)
        where = choose_device(device, local_rank=number)
        return cls(found.to(where).eval(), device=where)

    def predict(self, inputs: Mapping[str, np.ndarray]) -> Arrays:
        """What the function returns."""
        num_rows = len(next(iter(inputs.values())))
        with _without_gradients():
            outputs = to_arrays(self._function(**self._arguments(inputs)))
        check_rows(outputs, num_rows)
        return outputs

    def stream(self, inputs: Mapping[str, np.ndarray]) -> Iterator[Any]:
        """What the function yields."""
        if not self.is_stream:
            yield from super().stream(inputs)
        with _without_gradients():
            yield from self._function(**self._arguments(inputs))

    def fit(self, inputs: Mapping[str, Any]) -> Arrays:
        """As for every Handler; names must be those of the parameters."""
        unknown = next((name for name in inputs if name not in self._parameters), None)
        missing = next((n for n, is_required in self._parameters.items() if is_required and n not in inputs), None)
        if missing is not None or (unknown is not None and not self._takes_any):
            what = f"input {missing!r} is missing" if missing is not None else f"input {unknown!r} is unknown"
            raise InputError(f"{what}. The model takes: {', '.join(self._parameters)}.")
        return super().fit(inputs)

    def _arguments(self, inputs: Mapping[str, np.ndarray]) -> dict[str, Any]:
        if self._device is None:
            return dict(inputs)
        return {name: to_tensor(one, dtype="", device=self._device) for name, one in inputs.items()}


def _without_gradients() -> AbstractContextManager[Any]:
    torch = sys.modules.get("torch")
    return nullcontext() if torch is None else torch.inference_mode()


def _make(maker: Callable[[], Any], address: str) -> Any:
    try:
        return maker()
    except Exception as error:
        raise InputError(f"{address} failed: {type(error).__name__}: {error}.") from error


def _parameters(function: Callable[..., Any]) -> tuple[dict[str, bool], bool]:
    """Names of the parameters, and whether each is required; whether it takes any others."""
    found = list(inspect.signature(function).parameters.values())
    named = {
        one.name: one.default is one.empty for one in found if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
    }
    return named, any(one.kind is one.VAR_KEYWORD for one in found)
