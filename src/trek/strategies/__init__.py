"""How replicas of a model stay together: `solo`, `ddp`, `fsdp`. `open_strategy("ddp", world)` gives one."""

from trek.strategies.base import Strategy, open_strategy

__all__ = ["Strategy", "open_strategy"]
