"""Compiles models with torch.compile."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from trek.errors import ConfigError


def compile_model(model: nn.Module, *, backend: str | None = None) -> None:
    """Compile the calls of `model` in place, with torch's default backend or the one called `backend`.

    The module keeps its class, attributes and state dict. `nn.Module.compile` alone compiles nothing where the forward
    pass is torch's own code, as in an nn.Sequential: torch's compiler does not start inside torch. It does start in the
    function below, and continues from there into the model.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        return model._call_impl(*args, **kwargs)  # type: ignore[no-untyped-call]

    model._compiled_call_impl = torch.compile(call, **({"backend": backend} if backend else {}))  # type: ignore[call-overload]


def check_backend(backend: str) -> None:
    """Raise `ConfigError` unless torch.compile has a backend of this name."""
    known = torch.compiler.list_backends(exclude_tags=())
    if backend not in known:
        raise ConfigError(
            f"unknown backend {backend!r} of torch.compile. Use compile=True, or one of: {', '.join(known)}."
        )
