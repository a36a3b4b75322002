"""Data: named data sets, Tables of Arrow record batches, and loaders into training.

Names are resolved on first use, so that `import trek.data` loads neither torch nor pyarrow.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trek.data.batches import Batches
    from trek.data.datasets import Dataset, dataset_names, find_dataset
    from trek.data.execution import running_on
    from trek.data.execution.processes import ProcessExecutor
    from trek.data.execution.threads import ThreadExecutor
    from trek.data.expressions import Expression, col
    from trek.data.opening import open  # noqa: A004
    from trek.data.order import Order
    from trek.data.sharing import Handle
    from trek.data.table import Table

_HOMES = {
    "Batches": "trek.data.batches",
    "Dataset": "trek.data.datasets",
    "Expression": "trek.data.expressions",
    "Handle": "trek.data.sharing",
    "Order": "trek.data.order",
    "ProcessExecutor": "trek.data.execution.processes",
    "Table": "trek.data.table",
    "ThreadExecutor": "trek.data.execution.threads",
    "col": "trek.data.expressions",
    "dataset_names": "trek.data.datasets",
    "find_dataset": "trek.data.datasets",
    "open": "trek.data.opening",
    "running_on": "trek.data.execution",
}

__all__ = [
    "Batches",
    "Dataset",
    "Expression",
    "Handle",
    "Order",
    "ProcessExecutor",
    "Table",
    "ThreadExecutor",
    "col",
    "dataset_names",
    "find_dataset",
    "open",
    "running_on",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'trek.data' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
