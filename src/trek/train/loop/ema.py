"""Exponential moving average of weights: kept beside the model, updated after every step, used for validation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from trek.errors import ConfigError


class EMA:
    """The average of one model's trained parameters."""

    def __init__(self, model: nn.Module, *, decay: float) -> None:
        if not 0.0 < decay < 1.0:
            raise ConfigError(f"the decay of an average lies between 0 and 1, got {decay}. 0.999 is usual.")
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
        """Exchange weights and averages; a second call puts them back."""
        for parameter, average in zip(self._parameters, self._averages, strict=True):
            held = parameter.detach().clone()
            parameter.copy_(average)
            average.copy_(held)

    def state_dict(self) -> dict[str, Any]:
        """The averages by the names of their parameters, whole where they are sharded."""
        averages: list[Any] = self._averages
        whole = [a.full_tensor() if _is_sharded(a) else a for a in averages]
        return {"averages": dict(zip(self._names, whole, strict=True))}

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the averages back."""
        for name, average in zip(self._names, self._averages, strict=True):
            saved = state["averages"][name]
            average.copy_(_sharded_like(saved, average) if _is_sharded(average) else saved)


def _is_sharded(tensor: torch.Tensor) -> bool:
    # Asked by name: torch's DTensor takes half a second to import, which every start would pay.
    return hasattr(tensor, "full_tensor")


def _sharded_like(whole: torch.Tensor, sharded: Any) -> torch.Tensor:
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(whole, sharded.device_mesh, sharded.placements)
