"""Strategy: how replicas of a model stay together. One file per way; `solo` is one whose collectives are identities.

Contracts: collectives are called by every rank in the same order, from the training thread. A loss is multiplied with
`loss_weight` before backward, so that the gradients left after `sync_gradients` are those of the mean over all samples
of the global batch, however unevenly ranks share it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Literal

import torch
from torch import nn

from trek.strategies.naming import by_name, by_place, parameter_names
from trek.world import World

ReduceOp = Literal["sum", "max", "min"]


class Strategy(ABC):
    """Keeps the replicas of a World together."""

    name: ClassVar[str]
    saves_held_gradients: ClassVar[bool] = True
    """Whether gradients half way through a group are in the parameters, where a checkpoint finds them."""

    @classmethod
    def check_workers(cls, num_workers: int) -> None:
        """Raise `ConfigError` if this strategy cannot work with `num_workers` processes."""
        del num_workers  # most work with any number

    def __init__(self, world: World) -> None:
        self.world = world

    def setup(self) -> None:  # noqa: B027 - one process has nothing to set up
        """Meet the other ranks."""

    def teardown(self) -> None:  # noqa: B027
        """Leave the process group."""

    def wrap_model(self, model: nn.Module) -> nn.Module:
        """Place `model` on the device and make it one replica of many."""
        return model.to(self.world.device)

    def unwrap_model(self, model: nn.Module) -> nn.Module:
        """The user's own module."""
        return model

    @abstractmethod
    def loss_weight(self, num_samples: int, global_samples: int) -> float:
        """What a local mean loss is multiplied with before backward; 1.0 where shares are even."""

    def hold_gradients(self, model: nn.Module, *, held: bool) -> None:  # noqa: B027
        """Before a forward pass: whether the gradients of the coming backward stay on this rank for now."""

    def sync_gradients(self, parameters: Iterable[nn.Parameter]) -> None:  # noqa: B027
        """Make gradients global, where backward itself did not."""

    def step(self, optimizer: torch.optim.Optimizer, apply: Callable[[torch.optim.Optimizer], None]) -> None:
        """Apply global gradients: `apply` steps the optimizer in this process, which is where most strategies do it."""
        apply(optimizer)

    def sync_buffers(self, model: nn.Module) -> None:  # noqa: B027
        """Give every rank the leader's buffers (running statistics), before they are used or saved."""

    def clip_norm(self, parameters: Iterable[nn.Parameter], max_norm: float) -> torch.Tensor:
        """Clip global gradients by their norm; the norm before clipping."""
        return nn.utils.clip_grad_norm_(parameters, max_norm)

    @abstractmethod
    def reduce(self, tensor: torch.Tensor, op: ReduceOp = "sum") -> torch.Tensor:
        """The element-wise reduction over ranks, on every rank."""

    @abstractmethod
    def gather(self, value: Any) -> list[Any]:
        """Every rank's value, by rank, on every rank."""

    @abstractmethod
    def broadcast(self, value: Any) -> Any:
        """The leader's value, on every rank."""

    def any(self, flag: bool) -> bool:
        """Whether the flag is up on any rank."""
        return flag

    def barrier(self) -> None:  # noqa: B027
        """Wait for every rank."""

    def model_state(self, model: nn.Module) -> dict[str, torch.Tensor]:
        """The whole model's state, by the names in the user's own module. Only the leader's is complete."""
        return self.unwrap_model(model).state_dict()

    def load_model_state(self, model: nn.Module, state: dict[str, torch.Tensor]) -> None:
        """Load what `model_state` gave, on every rank."""
        self.unwrap_model(model).load_state_dict(state)

    def optimizer_state(self, model: nn.Module | None, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """The whole optimizer's state, by the names of `model`'s parameters. Only the leader's is complete."""
        state = optimizer.state_dict()
        return by_name(state, parameter_names(self.unwrap_model(model), optimizer)) if model else state

    def load_optimizer_state(
        self, model: nn.Module | None, optimizer: torch.optim.Optimizer, state: dict[str, Any]
    ) -> None:
        """Load what `optimizer_state` of any strategy gave, on every rank."""
        if model is not None:
            state = by_place(state, parameter_names(self.unwrap_model(model), optimizer))
        optimizer.load_state_dict(state)
