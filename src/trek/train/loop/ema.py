"""Exponential moving average of a model's weights: updated after every step, used for validation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from trek.errors import ConfigError
from trek.strategies.sharded import gathered, is_sharded, sharded_like


class EMA:
    """The average of one model's trained parameters."""

    def __init__(self, model: nn.Module, *, decay: float) -> None:
        if not 0.0 < decay < 1.0:
            raise ConfigError(
                f"the decay of a moving average must be between 0 and 1, got {decay}. A common value is 0.999."
            )
        self._decay = decay
        trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self._names = list(trained)
        self._parameters: list[torch.Tensor] = list(trained.values())
        self._averages = [p.detach().clone() for p in self._parameters]

    @torch.no_grad()
    def update(self) -> None:
        """Move the averages towards the weights."""
        torch._foreach_lerp_(self._averages, self._parameters, 1.0 - self._decay)

    @torch.no_grad()
    def swap(self) -> None:
        """Swap weights and averages; a second call swaps them back."""
        for parameter, average in zip(self._parameters, self._averages, strict=True):
            weights = parameter.detach().clone()
            parameter.copy_(average)
            average.copy_(weights)

    def state_dict(self) -> dict[str, Any]:
        """The averages by parameter name; sharded ones are gathered."""
        whole = [gathered(average) for average in self._averages]
        return {"averages": dict(zip(self._names, whole, strict=True))}

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the averages."""
        for name, average in zip(self._names, self._averages, strict=True):
            saved = state["averages"][name]
            average.copy_(sharded_like(saved, average) if is_sharded(average) else saved)
