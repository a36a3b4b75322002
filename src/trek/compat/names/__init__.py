"""The public names of other projects: where each is here, or why it is not. Data, from which the docs are made."""

from __future__ import annotations

from trek.compat.names.determined import DETERMINED
from trek.compat.names.elasticdl import ELASTICDL
from trek.compat.names.module_names import ModuleNames
from trek.compat.names.pytorch_quik import PYTORCH_QUIK
from trek.compat.names.twister2 import TWISTER2
from trek.compat.names.twister2flow import TWISTER2FLOW

PROJECTS: dict[str, tuple[ModuleNames, ...]] = {
    "Determined": DETERMINED,
    "ElasticDL": ELASTICDL,
    "Twister2": TWISTER2,
    "Twister2Flow": TWISTER2FLOW,
    "pytorch-quik": PYTORCH_QUIK,
}

__all__ = ["PROJECTS", "ModuleNames"]
