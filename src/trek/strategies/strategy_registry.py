"""The strategies by name. Loads no torch, so that a config can be checked without it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from trek.errors import ConfigError
from trek.registry import Registry

if TYPE_CHECKING:
    from trek.strategies.base import Strategy
    from trek.strategies.regrouping import Regrouping
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

_ELASTIC = {"ddp": "trek.strategies.regrouping:Regrouping", "ps": "trek.strategies.elastic_ps:ElasticServers"}
"""Strategies of workers that come and go."""


def default_strategy(num_workers: int) -> str:
    """The strategy used by default for this number of processes."""
    return "ddp" if num_workers > 1 else "solo"


def open_strategy(name: str, world: World, **options: Any) -> Strategy:
    """The Strategy called `name` for `world`; raises ConfigError if it does not support `world` or an option."""
    kind = STRATEGIES.load(name)
    kind.check_workers(world.size)
    STRATEGIES.check_settings(name, options, taken_by=partial(kind, world))
    return kind(world, **options)


def check_elastic(name: str | None, options: Mapping[str, Any], *, is_on_gpu: bool = False) -> None:
    """Raise ConfigError if this strategy cannot train with workers that come and go. None is the default one.

    NCCL's collectives do not end when a peer is lost, so that no worker would ever leave a broken group.
    """
    if name is not None and name not in _ELASTIC:
        raise ConfigError(
            f"strategy {name!r} cannot train with workers that come and go. Use 'ddp', 'ps', or a fixed number of "
            "workers."
        )
    if name == "ps" and not leases_work(name, options):
        raise ConfigError(
            "synchronous workers of parameter servers cannot come and go: a step needs a push of each. Use mode "
            "'async', or a fixed number of workers."
        )
    if (options.get("backend") or ("nccl" if is_on_gpu and name != "ps" else "gloo")) == "nccl":
        raise ConfigError(
            "workers that come and go cannot use the communication backend 'nccl'. Set strategy_options to "
            "{'backend': 'gloo'}, or use a fixed number of workers."
        )


def leases_work(name: str | None, options: Mapping[str, Any]) -> bool:
    """Whether workers of this strategy take what they train on from the job's coordinator, at their own pace."""
    return name == "ps" and options.get("mode", "async") == "async"


def open_elastic_strategy(name: str | None, world: World, *, is_exact: bool, options: Mapping[str, Any]) -> Regrouping:
    """The strategy called `name` of workers that come and go."""
    check_elastic(name, options, is_on_gpu=world.device.type == "cuda")
    if name == "ps":
        STRATEGIES.check_settings(name, options, taken_by=partial(STRATEGIES.load(name), world))
    module, _, kind = _ELASTIC[name or "ddp"].partition(":")
    opened: Regrouping = getattr(import_module(module), kind)(world, is_exact=is_exact, **options)
    return opened
