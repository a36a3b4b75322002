"""What of a model is sharded together, and what torch's fully sharded data parallel cannot shard. Moves no tensor."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import torch
from torch import nn

from trek.errors import ConfigError


def shard_units(model: nn.Module, *, shard_bytes: int) -> list[nn.Module]:
    """The modules to shard separately: the large children, also those in lists and other containers without a forward.

    The rest of the model is sharded with the model itself, as are modules that share a parameter with the rest, such as
    a tied embedding and head.
    """
    owners: dict[int, set[int]] = defaultdict(set)
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            owners[id(parameter)].add(id(module))
    return [
        child
        for child in _children(model)
        if sum(p.nbytes for p in child.parameters()) >= shard_bytes and not _shares(child, owners)
    ]


def check_shardable(model: nn.Module, units: Sequence[nn.Module]) -> None:
    """Raise `ConfigError` for parameters that cannot be sharded, or not with the others of their unit."""
    for name, parameter in model.named_parameters():
        if not parameter.dim():
            raise ConfigError(
                f"strategy 'fsdp' cannot shard the parameter {name!r}, which is a scalar. Give it the shape (1,), "
                "or use strategy 'ddp'."
            )
        if not parameter.numel() and parameter.requires_grad:
            raise ConfigError(
                f"strategy 'fsdp' cannot shard the parameter {name!r}, which has no elements: its shape is "
                f"{tuple(parameter.shape)}. Remove it, or use strategy 'ddp'."
            )
    in_units = {id(parameter) for unit in units for parameter in unit.parameters()}
    rest = {id(p) for p in model.parameters()} - in_units
    for members in (rest, *({id(p) for p in unit.parameters()} for unit in units)):
        _check_types({name: p for name, p in model.named_parameters() if id(p) in members and p.requires_grad})


def _children(module: nn.Module) -> Iterator[nn.Module]:
    for child in module.children():
        if type(child).forward is nn.Module.forward:
            yield from _children(child)
        else:
            yield child


def _shares(unit: nn.Module, owners: dict[int, set[int]]) -> bool:
    """Whether a parameter of `unit` belongs to a module outside of it too."""
    own = {id(module) for module in unit.modules()}
    return any(owners[id(parameter)] - own for parameter in unit.parameters())


def _check_types(trained: dict[str, nn.Parameter]) -> None:
    first: dict[torch.dtype, str] = {}
    for name, parameter in trained.items():
        first.setdefault(parameter.dtype, name)
    if len(first) > 1:
        (one, its_name), (other, other_name) = list(first.items())[:2]
        raise ConfigError(
            f"strategy 'fsdp' cannot shard {its_name!r} ({_name(one)}) and {other_name!r} ({_name(other)}) together. "
            f"Give all parameters one type, such as {_name(one)}, or use strategy 'ddp'."
        )


def _name(kind: torch.dtype) -> str:
    return str(kind).removeprefix("torch.")
