"""Strategies by themselves: one process is an identity, names travel, and a wrong group is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from trek.errors import ConfigError
from trek.strategies import open_strategy
from trek.strategies.naming import by_index, by_name, parameter_names
from trek.world import World

TWO = World(rank=0, size=2, local_size=2)


@pytest.fixture
def group(tmp_path: Path) -> Iterator[None]:
    """A process group of one, made by somebody else."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_one_process_agrees_with_itself() -> None:
    solo = open_strategy("solo", World())
    tensor = torch.arange(3.0)
    assert solo.reduce(tensor) is tensor
    assert solo.gather("a") == ["a"]
    assert solo.broadcast("a") == "a"
    assert [solo.any(flag) for flag in (True, False)] == [True, False]
    assert solo.loss_weight(4, 16) == 0.25
    solo.barrier()


def test_collectives_of_a_group_of_one_are_what_solo_does(group: None) -> None:
    ddp = open_strategy("ddp", World())
    ddp.setup()
    for op in ("sum", "max", "min"):
        assert ddp.reduce(torch.tensor([1.0, 2.0]), op).tolist() == [1.0, 2.0]  # type: ignore[arg-type]
    assert ddp.gather({"a": 1}) == [{"a": 1}]
    assert ddp.broadcast([1]) == [1]
    assert [ddp.any(flag) for flag in (True, False)] == [True, False]
    ddp.teardown()
    assert dist.is_initialized()  # whoever made the group ends it


def test_a_group_of_another_size_is_refused(group: None) -> None:
    with pytest.raises(ConfigError, match="expected a process group of 2 processes, got one of 1"):
        open_strategy("ddp", TWO).setup()


def test_parameters_without_a_gradient_keep_none(group: None) -> None:
    used, unused = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(3))
    (used * 2).sum().backward()
    open_strategy("ddp", World()).sync_gradients([used, unused])
    assert used.grad is not None
    assert used.grad.tolist() == [2.0, 2.0]
    assert unused.grad is None


def test_gradients_of_several_kinds_of_numbers_are_all_averaged(group: None) -> None:
    parameters = [nn.Parameter(torch.ones(2, dtype=dtype)) for dtype in (torch.float32, torch.float64)]
    for parameter in parameters:
        parameter.sum().backward()
    open_strategy("ddp", World()).sync_gradients(parameters)
    assert [p.grad.dtype for p in parameters if p.grad is not None] == [torch.float32, torch.float64]


def test_optimizer_state_travels_by_name() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    optimizer = torch.optim.Adam([*model[1].parameters(), *model[0].parameters()])  # an order of its own
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    names = parameter_names(model, optimizer)
    assert names == ["1.weight", "1.bias", "0.weight", "0.bias"]
    named = by_name(optimizer.state_dict(), names)
    other = torch.optim.Adam(model.parameters())
    other.load_state_dict(by_index(named, parameter_names(model, other)))
    for parameter in model.parameters():
        assert torch.equal(other.state[parameter]["exp_avg"], optimizer.state[parameter]["exp_avg"])


@pytest.mark.parametrize(
    ("name", "world", "options", "message"),
    [
        ("magic", World(), {}, "strategy 'magic' does not exist. Use one of: ddp, fsdp, ps, solo"),
        ("solo", TWO, {}, "trains one replica, got 2 processes.* Use strategy 'ddp', or one worker"),
        ("fsdp", World(), {}, "needs at least 2 processes, got 1"),
        ("ddp", TWO, {"backend": "mpi"}, "without the communication backend 'mpi'. Use gloo"),
        ("ddp", TWO, {"speed": 1}, "has no setting 'speed'. It has: backend, timeout_s, find_unused"),
    ],
)
def test_a_strategy_that_cannot_be_is_refused_with_what_can(
    name: str, world: World, options: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        open_strategy(name, world, **options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"timeout_s": -1.0}, "timeout_s must be greater than 0, got -1"),
        ({"shared_memory": "no"}, "True or False, got 'no'"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        open_strategy("ddp", World(), **options)
