"""pytorch-quik's spelling: `import trek.compat.pytorch_quik as pq`, and the rest of a script stays as it is.

Modules are loaded when they are first used, so that a script which does not log to MLflow does not need it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trek.lazy import lazy_names

if TYPE_CHECKING:
    from trek.compat.pytorch_quik import arg, args, ddp, io, metrics, tensor, transform, travel, utils

_MODULES = ("arg", "args", "ddp", "io", "metrics", "tensor", "transform", "travel", "utils")

__all__ = ["arg", "args", "ddp", "io", "metrics", "tensor", "transform", "travel", "utils"]

__getattr__ = lazy_names(__name__, {name: f"{__name__}.{name}" for name in _MODULES})


def __dir__() -> list[str]:
    return __all__
