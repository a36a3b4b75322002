"""How replicas of a model stay together: `solo`, `ddp`, `fsdp`. `open_strategy("ddp", world)` gives one.

Names are resolved on first use: which strategies there are is known without loading torch.
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
