"""FTRL-Proximal, which torch.optim does not have: sparse weights for models with very many features.

The rule is the one of McMahan et al., "Ad Click Prediction: a View from the Trenches" (2013), per coordinate:
`sigma = (sqrt(n + g²) − sqrt(n)) / lr`, `z += g − sigma·w`, `n += g²`, and w = 0 where |z| ≤ l1, otherwise
`−(z − sign(z)·l1) / ((beta + sqrt(n)) / lr + l2)`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.optim.optimizer import ParamsT


class FTRL(torch.optim.Optimizer):
    """Follow the regularised leader, with L1 and L2."""

    def __init__(
        self,
        params: ParamsT,
        lr: float = 0.1,
        l1: float = 0.0,
        l2: float = 0.0,
        beta: float = 0.0,
        initial_accumulator_value: float = 0.1,
    ) -> None:
        for name, value in (("lr", lr), ("initial_accumulator_value", initial_accumulator_value)):
            if not value > 0:
                raise ValueError(f"{name} must be greater than 0, got {value}")
        for name, value in (("l1", l1), ("l2", l2), ("beta", beta)):
            if not value >= 0:
                raise ValueError(f"{name} must be at least 0, got {value}")
        super().__init__(
            params, {"lr": lr, "l1": l1, "l2": l2, "beta": beta, "initial_accumulator_value": initial_accumulator_value}
        )

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One step for every parameter that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, parameter.grad, group)
        return loss

    def _update(self, parameter: torch.Tensor, gradient: torch.Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = torch.tensor(0.0)
            state["sum"] = torch.full_like(parameter, group["initial_accumulator_value"])
            state["linear"] = torch.zeros_like(parameter)
        state["step"] += 1
        settings = {name: group[name] for name in ("lr", "l1", "l2", "beta")}
        follow_leader(parameter, gradient, total=state["sum"], linear=state["linear"], **settings)


def follow_leader(
    values: torch.Tensor,
    gradients: torch.Tensor,
    *,
    total: torch.Tensor,
    linear: torch.Tensor,
    lr: float,
    l1: float,
    l2: float,
    beta: float,
) -> None:
    """One step of the rule, in place; `total` is n above and `linear` is z."""
    root = total.sqrt()
    total.addcmul_(gradients, gradients)
    grown = total.sqrt()
    linear.add_(gradients).addcmul_(root.neg_().add_(grown).div_(lr), values, value=-1)
    shrunk = torch.nn.functional.softshrink(linear, l1)
    torch.div(shrunk.neg_(), grown.add_(beta).div_(lr).add_(l2), out=values)
