"""Every rank holds a shard of each parameter: torch's fully sharded data parallel, for models larger than one device.

Checkpoints hold the full model under the names of the user's module, so a run can be resumed with another strategy or
number of processes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from trek.errors import ConfigError
from trek.strategies.collectives import CollectiveStrategy
from trek.world import World

# The shards of a smaller module are not worth a separate message; they are sent with their parent's.
_SHARD_BYTES = 1 << 20
_FULL = StateDictOptions(full_state_dict=True, cpu_offload=True)
_SHARDED = StateDictOptions(full_state_dict=True, broadcast_from_rank0=False)


class FSDP(CollectiveStrategy):
    """Fully sharded replicas."""

    name = "fsdp"
    saves_held_gradients = False

    @classmethod
    def check_workers(cls, num_workers: int) -> None:
        """At least two processes, because one cannot shard."""
        if num_workers < 2:
            raise ConfigError(
                f"strategy 'fsdp' needs at least 2 processes, got {num_workers}. "
                "Set resources.slots_per_trial (or workers) to 2 or more, or use strategy 'solo'."
            )

    def __init__(
        self, world: World, *, backend: str | None = None, timeout_s: float = 1800.0, shard_bytes: int = _SHARD_BYTES
    ) -> None:
        super().__init__(world, backend=backend, timeout_s=timeout_s)
        self._shard_bytes = shard_bytes

    def wrap_model(self, model: nn.Module) -> nn.Module:
        """Broadcast the leader's weights, shard every large child separately, then the rest."""
        model = super().wrap_model(model)
        for tensor in [*model.parameters(), *model.buffers()]:
            torch.distributed.broadcast(tensor.detach(), src=0)
        mesh = init_device_mesh(self.world.device.type, (self.world.size,))
        for child in model.children():
            if sum(p.nbytes for p in child.parameters()) >= self._shard_bytes:
                fully_shard(child, mesh=mesh)
        fully_shard(model, mesh=mesh)
        return model

    def loss_weight(self, num_samples: int, global_samples: int) -> float:
        """This rank's share of the samples times the number of ranks, because gradients are averaged over ranks."""
        return num_samples * self.world.size / global_samples

    def hold_gradients(self, model: nn.Module, *, held: bool) -> None:
        """Set whether the next backward pass reduces gradients."""
        if isinstance(model, FSDPModule):
            model.set_requires_gradient_sync(not held)

    def sync_buffers(self, model: nn.Module) -> None:
        """Broadcast the leader's buffers."""
        for buffer in model.buffers():
            torch.distributed.broadcast(buffer.detach(), src=0)

    def clip_norm(self, parameters: Iterable[nn.Parameter], max_norm: float) -> torch.Tensor:
        """Clip by the norm over all shards of all ranks."""
        norm = nn.utils.clip_grad_norm_(parameters, max_norm)
        full: torch.Tensor = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
        return full

    def model_state(self, model: nn.Module) -> dict[str, torch.Tensor]:
        """Gathered on the leader's CPU."""
        return dict(get_model_state_dict(model, options=_FULL))  # type: ignore[arg-type]  # no nested states here

    def load_model_state(self, model: nn.Module, state: dict[str, torch.Tensor]) -> None:
        """Each rank keeps its shard."""
        set_model_state_dict(model, dict(state), options=_SHARDED)

    def optimizer_state(self, model: nn.Module | None, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """Gathered on the leader's CPU, with parameters by name."""
        return dict(get_optimizer_state_dict(_owner(model), optimizer, options=_FULL))

    def load_optimizer_state(
        self, model: nn.Module | None, optimizer: torch.optim.Optimizer, state: dict[str, Any]
    ) -> None:
        """Each rank keeps its shard."""
        set_optimizer_state_dict(_owner(model), optimizer, state, options=_SHARDED)


def _owner(model: nn.Module | None) -> nn.Module:
    if model is None:
        raise ConfigError(
            "strategy 'fsdp' requires that all parameters of an optimizer belong to one model. "
            "Use a separate optimizer for each model."
        )
    return model
