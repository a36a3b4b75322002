"""Every strategy of ours keeps the contract; one that breaks it is found out."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest

from trek.strategies.strategy_registry import STRATEGIES
from trek.testing.plugins import plugin_package
from trek.testing.strategy_conformance import StrategyConformance


class TestSolo(StrategyConformance):
    strategy = "solo"
    num_workers = 1
    wrong_num_workers = 2


class TestDDP(StrategyConformance):
    strategy = "ddp"
    num_workers = 3


class TestDDPOverTheNetwork(StrategyConformance):
    strategy = "ddp"
    options: ClassVar[dict[str, Any]] = {"shared_memory": False}


class TestFSDP(StrategyConformance):
    strategy = "fsdp"
    wrong_num_workers = 1


class TestPS(StrategyConformance):
    strategy = "ps"
    options: ClassVar[dict[str, Any]] = {"mode": "sync"}

    def run(self, function: Any, *args: Any, **settings: Any) -> Any:
        return super().run(function, *args, servers=1, **settings)


def test_every_strategy_of_ours_is_tested_here() -> None:
    suites = [one for one in globals().values() if isinstance(one, type) and issubclass(one, StrategyConformance)]
    assert {one.strategy for one in suites if one is not StrategyConformance} == set(STRATEGIES.names())


CARELESS = """
from trek.strategies.ddp import DDP

class Careless(DDP):
    def loss_weight(self, num_samples, global_samples):
        return 1.0  # shares of 3 and 2 samples count as one half each
"""


def test_the_suite_notices_a_gradient_that_is_weighted_by_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Suite(StrategyConformance):
        strategy = "careless"

    monkeypatch.setenv("TREK_HOME", str(tmp_path / "home"))
    entry_points = {"trek.strategies": {"careless": "careless_strategy:Careless"}}
    with plugin_package(
        tmp_path / "site", module="careless_strategy", source=CARELESS, entry_points=entry_points, refresh=STRATEGIES
    ):
        Suite().test_collectives_reach_every_rank()
        with pytest.raises(AssertionError, match="not close"):
            Suite().test_training_is_that_of_one_process(1, None)
