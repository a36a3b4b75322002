"""pytorch-quik's spelling: `import trek.compat.pytorch_quik as pq`, and the rest of a script stays as it is.

Modules are loaded when they are first used, so that a script which does not log to MLflow does not need it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trek.lazy import lazy_names

if TYPE_CHECKING:
    from trek.compat.pytorch_quik import (
        api,
        arg,
        args,
        bert,
        ddp,
        hugging,
        io,
        metrics,
        mlflow,
        serve,
        tensor,
        transform,
        travel,
        tune,
        utils,
    )

__all__ = [
    "api",
    "arg",
    "args",
    "bert",
    "ddp",
    "hugging",
    "io",
    "metrics",
    "mlflow",
    "serve",
    "tensor",
    "transform",
    "travel",
    "tune",
    "utils",
]

__getattr__ = lazy_names(__name__, {name: f"{__name__}.{name}" for name in __all__})


def __dir__() -> list[str]:
    return __all__
