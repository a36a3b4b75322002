"""The registry of strategies: which of them may train with workers that come and go."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from trek.errors import ConfigError
from trek.strategies.strategy_registry import check_elastic, open_elastic_strategy
from trek.world import World


@pytest.mark.parametrize(
    ("name", "options", "is_on_gpu"),
    [
        (None, {"backend": "nccl"}, False),
        ("ddp", {"backend": "nccl"}, True),
        ("ddp", {}, True),
        (None, {}, True),
        ("ps", {"backend": "nccl"}, False),
    ],
)
def test_nccl_is_refused_whether_it_is_named_or_the_default(
    name: str | None, options: dict[str, Any], is_on_gpu: bool
) -> None:
    with pytest.raises(ConfigError, match=r"cannot use the communication backend 'nccl'\. Set strategy_options to"):
        check_elastic(name, options, is_on_gpu=is_on_gpu)


@pytest.mark.parametrize(
    ("name", "options", "is_on_gpu"),
    [(None, {}, False), ("ddp", {"backend": "gloo"}, True), ("ps", {}, True), ("ps", {"backend": "gloo"}, True)],
)
def test_gloo_may_be_used_on_any_device(name: str | None, options: dict[str, Any], is_on_gpu: bool) -> None:
    check_elastic(name, options, is_on_gpu=is_on_gpu)


def test_a_worker_on_a_gpu_is_refused_before_it_joins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(World, "device", torch.device("cuda"))
    world = World(max_size=2)
    with pytest.raises(ConfigError, match="'nccl'"):
        open_elastic_strategy(None, world, is_exact=False, options={})
