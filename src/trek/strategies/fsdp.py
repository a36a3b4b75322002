"""Every rank holds a shard of each parameter: torch's fully sharded data parallel, for models larger than one device.

Checkpoints hold the full model under the names of the user's module, so a run can be resumed with another strategy or
number of processes. Every backward pass averages gradients over ranks, also while they accumulate: a rank never holds
whole gradients, and a checkpoint inside a group of accumulated batches holds what they have come to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from trek.errors import ConfigError
from trek.ps.embedding import row_modules
from trek.strategies.base import sum_gradients
from trek.strategies.collectives import CollectiveStrategy
from trek.strategies.fsdp_units import check_shardable, shard_units
from trek.strategies.naming import by_index, by_name, parameter_names
from trek.strategies.sharded import gathered, is_sharded, sharded_like
from trek.strategies.sparse import sparse_parameters
from trek.world import World

# The shards of a smaller module are not worth a separate message; they are sent with their parent's.
_SHARD_BYTES = 1 << 20
_FULL = StateDictOptions(full_state_dict=True, cpu_offload=True)
_MIXED = "mixed torch.Tensor and DTensor"
"""What torch says when a computation uses a parameter of which this rank has its shard alone."""


class FSDP(CollectiveStrategy):
    """Fully sharded replicas."""

    name = "fsdp"

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

    def bind_tables(self, model: nn.Module) -> None:
        """Tables are not sharded by fsdp; parameter servers do that."""
        if any(row_modules(model)):
            raise ConfigError("strategy 'fsdp' cannot train trek.nn.Embedding. Use strategy 'ps', 'ddp' or 'solo'.")

    def wrap_model(self, model: nn.Module) -> nn.Module:
        """Broadcast the leader's weights, shard every large child separately, then the rest; see `fsdp_units`."""
        if sparse := sparse_parameters(model):
            raise ConfigError(
                f"strategy 'fsdp' cannot shard {next(iter(sparse))!r}, whose gradient is sparse. Make its module "
                "without sparse=True, or use strategy 'ddp'."
            )
        units = shard_units(model, shard_bytes=self._shard_bytes)
        check_shardable(model, units)
        model = super().wrap_model(model)
        self.start_equal(model)
        for parameter in model.parameters():
            parameter.data = parameter.data.contiguous()
        mesh = init_device_mesh(self.world.device.type, (self.world.size,))
        for unit in units:
            fully_shard(unit, mesh=mesh)
        fully_shard(model, mesh=mesh)
        return model

    def cause_of(self, error: BaseException) -> ConfigError | None:
        """A parameter that was used while it was not gathered."""
        if not isinstance(error, RuntimeError) or _MIXED not in str(error):
            return None
        return ConfigError(
            "strategy 'fsdp' gathers the parameters of a module while its forward() runs, but one was used outside of "
            "it, such as by another method of the module, or by F.linear(x, embedding.weight). Call the module itself, "
            f"set shard_bytes (now {self._shard_bytes}) to more than the module has, so that it is gathered with the "
            "whole model, or use strategy 'ddp'."
        )

    def loss_weight(self, num_samples: int, global_samples: int) -> float:
        """This rank's share of the samples times the number of ranks, because gradients are averaged over ranks."""
        return num_samples * self.world.size / global_samples

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
        own = model.state_dict()
        shards = {name: _shard(value, like=own[name]) if name in own else value for name, value in state.items()}
        model.load_state_dict(shards)
        self._mark_buffers(model)

    def follow_restored(self, model: nn.Module) -> None:
        """Also forget whole parameters that a forward pass has gathered."""
        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.reshard()
        super().follow_restored(model)

    def optimizer_state(self, model: nn.Module | None, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """Gathered on the leader's CPU, with parameters by name."""
        named = by_name(optimizer.state_dict(), parameter_names(_owner(model), optimizer))
        named["state"] = {
            name: {key: self._gathered(value) for key, value in values.items()}
            for name, values in named["state"].items()
        }
        return named

    def load_optimizer_state(
        self, model: nn.Module | None, optimizer: torch.optim.Optimizer, state: dict[str, Any]
    ) -> None:
        """Each rank keeps its shard."""
        indexed = by_index(state, parameter_names(_owner(model), optimizer))
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        indexed["state"] = {
            index: {key: _shard(value, like=parameters[index]) for key, value in values.items()}
            for index, values in indexed["state"].items()
        }
        optimizer.load_state_dict(indexed)

    def held_gradients(self, parameters: Sequence[nn.Parameter]) -> dict[int, torch.Tensor]:
        """None: every backward pass averages over ranks."""
        return {}

    def averaged_gradients(self, parameters: Sequence[nn.Parameter]) -> dict[int, torch.Tensor]:
        """Gathered on the leader's CPU."""
        return {index: self._gathered(p.grad) for index, p in enumerate(parameters) if p.grad is not None}

    def load_gradients(
        self,
        parameters: Sequence[nn.Parameter],
        *,
        held: Sequence[Mapping[int, torch.Tensor]],
        averaged: Mapping[int, torch.Tensor],
    ) -> None:
        """Each rank keeps its shard of the mean."""
        mean = sum_gradients(held, scale=1 / len(held))
        for index, gradient in sum_gradients([mean, averaged]).items():
            parameter = parameters[index]
            parameter.grad = _shard(gradient.to(parameter.dtype), like=parameter)

    def _gathered(self, value: Any) -> Any:
        if not is_sharded(value):
            return value
        whole = gathered(value)
        return whole.cpu() if self.world.is_leader else None


def _shard(value: Any, *, like: torch.Tensor) -> Any:
    """This rank's part of what belongs to a sharded parameter, such as its momentum; counts are whole."""
    is_part = is_sharded(like) and isinstance(value, torch.Tensor) and value.shape == like.shape
    return sharded_like(value, like) if is_part else value


def _owner(model: nn.Module | None) -> nn.Module:
    if model is None:
        raise ConfigError(
            "strategy 'fsdp' requires that all parameters of an optimizer belong to one model. "
            "Use a separate optimizer for each model."
        )
    return model
