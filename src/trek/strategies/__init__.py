"""How replicas of a model are kept in sync: `solo`, `ddp`, `fsdp`. Use `open_strategy("ddp", world)`.

Names are resolved on first use, so that the strategies can be listed without loading torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trek.lazy import lazy_names

if TYPE_CHECKING:
    from trek.strategies.base import Strategy
    from trek.strategies.strategy_registry import open_strategy

_HOMES = {"Strategy": "trek.strategies.base", "open_strategy": "trek.strategies.strategy_registry"}

__all__ = ["Strategy", "open_strategy"]

__getattr__ = lazy_names("trek.strategies", _HOMES)
