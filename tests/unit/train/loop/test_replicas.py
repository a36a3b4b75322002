"""What ranks add is compared by everything that makes replicas train alike."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

from trek.errors import InputError
from trek.strategies.solo import Solo
from trek.train.loop.replicas import Facts, check_equal, model_facts, optimizer_facts, scheduler_facts
from trek.world import World


class TwoRanks(Solo):
    """Rank 0, and what rank 1 sends."""

    def __init__(self, other: Facts) -> None:
        super().__init__(World())
        self._other = other

    def reduce(self, tensor: torch.Tensor, op: Any = "sum") -> torch.Tensor:
        sent: list[torch.Tensor] = []
        check_equal(_Recording(sent), self._other)
        return torch.maximum(tensor, sent[0])

    def gather(self, value: Any) -> list[Any]:
        return [value, [[*item] for item in self._other.items()]]


class _Recording(Solo):
    def __init__(self, sent: list[torch.Tensor]) -> None:
        super().__init__(World())
        self._sent = sent

    def reduce(self, tensor: torch.Tensor, op: Any = "sum") -> torch.Tensor:
        self._sent.append(tensor)
        return tensor


class Model(nn.Module):
    def __init__(self, *, width: int = 3, **changes: Any) -> None:
        super().__init__()
        self.layer = nn.Linear(2, width, dtype=changes.get("dtype"))
        self.register_buffer("scale", torch.ones(changes.get("scale", 1)))
        if changes.get("is_frozen"):
            self.layer.bias.requires_grad_(False)
        if changes.get("has_head"):
            self.head = nn.Linear(3, 1)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"width": 4},
            r"'layer.weight' is float32 of shape \(3, 2\) on rank 0 and float32 of shape \(4, 2\) on rank 1",
        ),
        ({"dtype": torch.float64}, "float32 of shape .* on rank 0 and float64 of"),
        ({"scale": 2}, r"buffer 'scale' is float32 of shape \(1,\) on rank 0 and"),
        ({"is_frozen": True}, r"'layer.bias' is float32 of shape \(3,\) on rank 0 and .*, not trained on rank 1"),
        ({"has_head": True}, r"'head.weight' is missing on rank 0 and float32"),
    ],
    ids=["shape", "type", "buffer", "frozen", "number"],
)
def test_a_model_that_differs_is_refused_by_name_and_rank(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        check_equal(TwoRanks(model_facts(Model(**changes))), model_facts(Model()))


def test_equal_models_are_accepted_and_parameters_in_another_order_are_not() -> None:
    facts = model_facts(Model())
    check_equal(TwoRanks(model_facts(Model())), facts)
    turned = dict(reversed(facts.items()))
    with pytest.raises(InputError, match=r"parameter 'layer.weight' on rank 0 is where buffer 'scale' is on rank 1"):
        check_equal(TwoRanks(turned), facts)


def test_optimizers_are_compared_by_kind_parameters_and_settings() -> None:
    model = Model()
    weight, bias = model.parameters()

    def facts(kind: type[torch.optim.Optimizer] = torch.optim.SGD, *, turned: bool = False, lr: float = 0.1) -> Facts:
        return optimizer_facts(kind([bias, weight] if turned else [weight, bias], lr=lr), [model])  # type: ignore[call-arg]

    check_equal(TwoRanks(facts()), facts())
    with pytest.raises(InputError, match="kind is SGD on rank 0 and AdamW on rank 1"):
        check_equal(TwoRanks(facts(torch.optim.AdamW)), facts())
    with pytest.raises(InputError, match=r"parameter 0 of param group 0 is 'layer.weight' on rank 0 and 'layer.bias'"):
        check_equal(TwoRanks(facts(turned=True)), facts())
    with pytest.raises(InputError, match=r"lr of param group 0 is 0.1 on rank 0 and 0.2 on rank 1\. Build"):
        check_equal(TwoRanks(facts(lr=0.2)), facts())


def test_schedulers_are_compared_by_unit_and_numbers() -> None:
    optimizer = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1)

    def facts(gamma: float = 0.9, *, per: str = "step") -> Facts:
        return scheduler_facts(lr_scheduler.ExponentialLR(optimizer, gamma), per=per, every=1)

    check_equal(TwoRanks(facts()), facts())
    with pytest.raises(InputError, match=r"gamma is 0.9 on rank 0 and 0.8 on rank 1"):
        check_equal(TwoRanks(facts(0.8)), facts())
    with pytest.raises(InputError, match="unit is 1 step on rank 0 and 1 batch on rank 1"):
        check_equal(TwoRanks(facts(per="batch")), facts())
