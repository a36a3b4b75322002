"""Every strategy of ours keeps the contract; one that breaks it is found out."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from trek.strategies.ddp import DDP
from trek.strategies.strategy_registry import STRATEGIES
from trek.testing.strategy_conformance import StrategyConformance, by_hand


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


def test_every_strategy_of_ours_is_tested_here() -> None:
    suites = [one for one in globals().values() if isinstance(one, type) and issubclass(one, StrategyConformance)]
    assert {one.strategy for one in suites if one is not StrategyConformance} == set(STRATEGIES.names())


def test_the_suite_notices_a_gradient_that_is_weighed_by_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shares of 3 and 2 samples that count as one half each."""

    class Careless(DDP):
        def loss_weight(self, num_samples: int, global_samples: int) -> float:
            return 1.0

    suite = TestDDPOverTheNetwork()
    right = {name: values.tolist() for name, values in by_hand().items()}

    def careless(function: Any, *args: Any, **settings: Any) -> Any:
        first = next(iter(right))
        return {**right, first: (by_hand()[first] * 1.001).tolist()}

    monkeypatch.setattr(suite, "run", careless)
    assert Careless.loss_weight is not DDP.loss_weight
    with pytest.raises(AssertionError):
        suite.test_training_is_that_of_one_process(1, None)
