"""Optimizer state by the names of parameters instead of their places, so that any strategy can take it over."""

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
    """What `optimizer.state_dict()` gives, with names for places."""
    return _renamed(state, dict(enumerate(names)))


def by_place(state: Mapping[str, Any], names: list[str]) -> dict[str, Any]:
    """What `optimizer.load_state_dict()` takes, from state by name."""
    placed = _renamed(state, {name: place for place, name in enumerate(names)})
    for group in placed["param_groups"]:
        group["params"].sort()  # torch pairs a group's parameters by their order, whatever their places say
    return placed


def _renamed(state: Mapping[str, Any], new: Mapping[Any, Any]) -> dict[str, Any]:
    groups = [{**group, "params": [new[key] for key in group["params"]]} for group in state["param_groups"]]
    return {**state, "state": {new[key]: value for key, value in state["state"].items()}, "param_groups": groups}
