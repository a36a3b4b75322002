"""What is sharded together: large modules, wherever they are, and nothing that torch would fail on."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from trek.errors import ConfigError
from trek.strategies.fsdp_units import check_shardable, shard_units


class Model(nn.Module):
    """Layers in containers, a head, and whatever a test adds."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(9, 4)
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
        self.named = nn.ModuleDict({"inner": nn.ModuleList([nn.Linear(4, 4)])})
        self.head = nn.Linear(4, 9, bias=False)


def names(model: nn.Module, units: list[nn.Module]) -> list[str]:
    return [name for name, module in model.named_modules() if module in units]


def test_containers_are_looked_into_and_small_modules_stay_with_their_parent() -> None:
    model = Model()
    every = ["embedding", "layers.0", "layers.1", "named.inner.0", "head"]
    assert names(model, shard_units(model, shard_bytes=1)) == every
    assert names(model, shard_units(model, shard_bytes=100)) == ["embedding", "head"]
    assert shard_units(model, shard_bytes=10_000) == []


def test_modules_that_share_a_parameter_with_others_stay_with_the_model() -> None:
    model = Model()
    model.head.weight = model.embedding.weight
    assert names(model, shard_units(model, shard_bytes=1)) == ["layers.0", "layers.1", "named.inner.0"]


def test_a_module_that_is_used_twice_is_one_unit() -> None:
    model = Model()
    model.layers.append(model.layers[0])
    assert len(shard_units(model, shard_bytes=1)) == 5


def test_a_scalar_parameter_is_refused_by_name() -> None:
    model = Model()
    model.head.register_parameter("temperature", nn.Parameter(torch.tensor(1.0)))
    with pytest.raises(ConfigError, match=r"the parameter 'head.temperature', which is a scalar\. Give it the shape"):
        check_shardable(model, shard_units(model, shard_bytes=1))


def test_a_trained_parameter_without_elements_is_refused_by_name() -> None:
    model = Model()
    model.head.register_parameter("nothing", nn.Parameter(torch.zeros(0, 4)))
    with pytest.raises(ConfigError, match=r"'head.nothing', which has no elements: its shape is \(0, 4\)\. Remove it"):
        check_shardable(model, [])
    model.head.nothing.requires_grad_(False)
    check_shardable(model, [])


def test_types_may_differ_between_units_but_not_inside_of_one() -> None:
    model = Model()
    model.layers[1].double()
    model.head.bfloat16()
    units = shard_units(model, shard_bytes=1)
    check_shardable(model, units)
    with pytest.raises(ConfigError, match=r"'embedding.weight' \(float32\) and 'layers.1.weight' \(float64\) together"):
        check_shardable(model, [])
    model.layers[1].bias = nn.Parameter(torch.zeros(4))
    with pytest.raises(ConfigError, match=r"'layers.1.weight' \(float64\) and 'layers.1.bias' \(float32\) together"):
        check_shardable(model, units)
    model.layers[1].bias.requires_grad_(False)
    check_shardable(model, units)
