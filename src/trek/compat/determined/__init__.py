"""Determined's names, of its versions 0.12 to 0.38: `import determined as det` becomes `import trek.compat.determined`.

Its parts are `pytorch`, `core` and `experimental`, as there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trek.errors import InvalidHP
from trek.lazy import lazy_names

if TYPE_CHECKING:
    from trek.compat.determined import core, experimental, pytorch
    from trek.compat.determined.info import ClusterInfo, TrialInfo, get_cluster_info
    from trek.compat.determined.pytorch import PyTorchTrialContext as TrialContext

LOG_FORMAT = "%(levelname)s: [%(process)s] %(name)s: %(message)s"
"""A format for `logging.basicConfig`."""

_HOMES = {
    "ClusterInfo": "trek.compat.determined.info",
    "TrialContext": "trek.compat.determined.pytorch",
    "TrialInfo": "trek.compat.determined.info",
    "core": "trek.compat.determined.core",
    "experimental": "trek.compat.determined.experimental",
    "get_cluster_info": "trek.compat.determined.info",
    "pytorch": "trek.compat.determined.pytorch",
}

__all__ = [
    "LOG_FORMAT",
    "ClusterInfo",
    "InvalidHP",
    "TrialContext",
    "TrialInfo",
    "core",
    "experimental",
    "get_cluster_info",
    "pytorch",
]

__getattr__ = lazy_names("trek.compat.determined", _HOMES)
