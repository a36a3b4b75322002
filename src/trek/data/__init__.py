"""Data: named data sets, Tables of Arrow record batches, and loaders into training.

Names are resolved on first use, so that `import trek.data` loads neither torch nor pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trek.lazy import lazy_names

if TYPE_CHECKING:
    from trek.data.batching.batches import Batches
    from trek.data.batching.order import Order
    from trek.data.datasets import Dataset, dataset_names, find_dataset
    from trek.data.execution import running_on
    from trek.data.execution.processes import ProcessExecutor
    from trek.data.execution.threads import ThreadExecutor
    from trek.data.fetching.named_files import fetch_files
    from trek.data.plans.expressions import Expression, col
    from trek.data.resolve import from_ray_data, open  # noqa: A004
    from trek.data.storing.sharing import Handle
    from trek.data.table import Table

_HOMES = {
    "Batches": "trek.data.batching.batches",
    "Dataset": "trek.data.datasets",
    "Expression": "trek.data.plans.expressions",
    "Handle": "trek.data.storing.sharing",
    "Order": "trek.data.batching.order",
    "ProcessExecutor": "trek.data.execution.processes",
    "Table": "trek.data.table",
    "ThreadExecutor": "trek.data.execution.threads",
    "col": "trek.data.plans.expressions",
    "dataset_names": "trek.data.datasets",
    "fetch_files": "trek.data.fetching.named_files",
    "find_dataset": "trek.data.datasets",
    "from_ray_data": "trek.data.resolve",
    "open": "trek.data.resolve",
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
    "fetch_files",
    "find_dataset",
    "from_ray_data",
    "open",
    "running_on",
]


__getattr__ = lazy_names("trek.data", _HOMES)


def __dir__() -> list[str]:
    return __all__
