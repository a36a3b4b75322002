"""Serving: models behind HTTP, and inference over whole data sets.

Names are resolved on first use, so that `import trek.serve` loads neither torch nor a web framework.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trek.lazy import lazy_names

if TYPE_CHECKING:
    from trek.serve.archiving import archive
    from trek.serve.batch_client import batch_inference
    from trek.serve.handlers.base import Handler
    from trek.serve.model_source import ModelSource
    from trek.serve.prediction import predict, predictions
    from trek.serve.server import Server

_HOMES = {
    "Handler": "trek.serve.handlers.base",
    "ModelSource": "trek.serve.model_source",
    "Server": "trek.serve.server",
    "archive": "trek.serve.archiving",
    "batch_inference": "trek.serve.batch_client",
    "predict": "trek.serve.prediction",
    "predictions": "trek.serve.prediction",
}

__all__ = ["Handler", "ModelSource", "Server", "archive", "batch_inference", "predict", "predictions"]


__getattr__ = lazy_names("trek.serve", _HOMES)


def __dir__() -> list[str]:
    return __all__
