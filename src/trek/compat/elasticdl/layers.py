"""`elasticdl.layers`: embeddings whose rows lie on parameter servers, over `trek.nn`."""

from __future__ import annotations

from typing import Any

from torch import nn

import trek
from trek.errors import ConfigError

_COMBINERS = {"sum": "sum", "mean": "mean"}


def Embedding(  # noqa: N802 - a class there
    output_dim: int,
    embeddings_initializer: str = "uniform",
    combiner: str | None = None,
    name: str | None = None,
    input_dim: int | None = None,
    **ignored: Any,
) -> nn.Module:
    """A `trek.nn.Embedding`, or with a `combiner` a `trek.nn.EmbeddingBag`. The number of ids need not be known."""
    if name is None:
        raise ConfigError("an Embedding needs a name, by which the servers know its table. Pass name=.")
    if ignored:
        raise ConfigError(f"Embedding does not know {sorted(ignored)[0]!r}. Remove it.")
    initial: Any = embeddings_initializer
    if combiner is None:
        return trek.nn.Embedding(name, output_dim, initial=initial)
    if combiner not in _COMBINERS:
        raise ConfigError(f"combiner must be one of {', '.join(_COMBINERS)}, got {combiner!r}.")
    mode: Any = _COMBINERS[combiner]
    return trek.nn.EmbeddingBag(name, output_dim, mode=mode, initial=initial)
