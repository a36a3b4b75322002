"""Parameter servers: tables of embedding rows and dense parameters, updated where they lie by torch's optimizers.

Names are resolved on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trek.lazy import lazy_names

if TYPE_CHECKING:
    from trek.ps.client import Client
    from trek.ps.ftrl import FTRL
    from trek.ps.rules import Rule
    from trek.ps.serving import to_embedding
    from trek.ps.table_spec import Initial, TableSpec

_HOMES = {
    "Client": "trek.ps.client",
    "FTRL": "trek.ps.ftrl",
    "Initial": "trek.ps.table_spec",
    "Rule": "trek.ps.rules",
    "TableSpec": "trek.ps.table_spec",
    "to_embedding": "trek.ps.serving",
}

__all__ = ["FTRL", "Client", "Initial", "Rule", "TableSpec", "to_embedding"]

__getattr__ = lazy_names("trek.ps", _HOMES)
