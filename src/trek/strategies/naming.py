"""Optimizer state by parameter name instead of index, so that any strategy can load it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn


def parameter_names(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[str]:
    """The name in `model` of each parameter of `optimizer`, in the optimizer's order."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return [names[id(parameter)] for group in optimizer.param_groups for parameter in group["params"]]


def by_name(state: Mapping[str, Any], names: list[str]) -> dict[str, Any]:
    """The result of `optimizer.state_dict()` with names instead of indices."""
    return _renamed(state, dict(enumerate(names)))


def by_index(state: Mapping[str, Any], names: list[str]) -> dict[str, Any]:
    """The argument of `optimizer.load_state_dict()` from state by name."""
    indexed = _renamed(state, {name: index for index, name in enumerate(names)})
    for group in indexed["param_groups"]:
        group["params"].sort()  # torch matches the parameters of a group by their order, not by their indices
    return indexed


def _renamed(state: Mapping[str, Any], new: Mapping[Any, Any]) -> dict[str, Any]:
    groups = [{**group, "params": [new[key] for key in group["params"]]} for group in state["param_groups"]]
    return {**state, "state": {new[key]: value for key, value in state["state"].items()}, "param_groups": groups}
