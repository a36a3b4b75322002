"""The strategies by name. Loads no torch, so that a config can be checked without it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from trek.registry import Registry

if TYPE_CHECKING:
    from trek.strategies.base import Strategy
    from trek.world import World

STRATEGIES: Registry[type[Strategy]] = Registry(
    "strategies",
    {
        "solo": "trek.strategies.solo:Solo",
        "ddp": "trek.strategies.ddp:DDP",
        "fsdp": "trek.strategies.fsdp:FSDP",
        "ps": "trek.strategies.ps:ParameterServers",
    },
    word="strategy",
    extras={"ps": "numba"},
    base="trek.strategies.base:Strategy",
)


def default_strategy(num_workers: int) -> str:
    """The strategy used by default for this number of processes."""
    return "ddp" if num_workers > 1 else "solo"


def open_strategy(name: str, world: World, **options: Any) -> Strategy:
    """The Strategy called `name` for `world`; raises ConfigError if it does not support `world` or an option."""
    kind = STRATEGIES.load(name)
    kind.check_workers(world.size)
    STRATEGIES.check_settings(name, options, taken_by=partial(kind, world))
    return kind(world, **options)
