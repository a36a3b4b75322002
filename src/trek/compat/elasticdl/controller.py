"""`elasticai_api.pytorch.controller` and `.optimizer`: data-parallel training of a loop for one process.

Over a `trek.Traveler`: the controller places the model and the optimizer, and `elastic_run` averages gradients over all
processes. Processes are those that `trek launch --workers N`, torchrun, mpirun or srun start. Workers that come and go
while a loop with its own loader runs are not supported: the batches must come from the Traveler for that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

import trek
from trek.compat.elasticdl.data_shard_service import RecordIndexService
from trek.errors import ConfigError, InputError


class DistributedOptimizer:
    """An optimizer whose `step` first averages the gradients over all processes, once a controller has taken it."""

    def __init__(self, optimizer: torch.optim.Optimizer, fixed_global_batch_size: bool = False) -> None:
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise InputError(f"an optimizer must be a torch.optim.Optimizer, got {type(optimizer).__name__}.")
        self.optimizer = optimizer
        self._traveler: trek.Traveler | None = None

    def bind(self, traveler: trek.Traveler) -> None:
        """Step through `traveler` from now on."""
        self._traveler = traveler
        traveler.add_optimizer(self.optimizer)

    def step(self) -> None:
        """Average the gradients, step, clear the gradients."""
        if self._traveler is None:
            raise InputError("the optimizer is not part of a controller. Call controller.set_broadcast_optimizer.")
        self._traveler.step(self.optimizer)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients."""
        self.optimizer.zero_grad(set_to_none=set_to_none)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Those of the optimizer, for schedulers."""
        return self.optimizer.param_groups


class PyTorchAllReduceController:
    """Keeps the replicas of a loop together."""

    def __init__(self, data_shard_service: RecordIndexService | None) -> None:
        self.data_shard_service = data_shard_service
        self._traveler = trek.Traveler(show_progress=False)
        if self._traveler.group.is_elastic:
            self._traveler.close()
            raise ConfigError(
                "this loop reads its own loader, so its processes cannot come and go. Start it with a fixed number, "
                "--workers N, or read the data through a trek.Traveler: see docs/elastic.md."
            )

    def set_broadcast_model(self, model: nn.Module) -> None:
        """Take the model; every process starts with the leader's weights."""
        weights = {name: value.clone() for name, value in model.state_dict().items()}
        model.load_state_dict(self._traveler.strategy.broadcast(weights))
        self._traveler.add_model(model)

    def set_broadcast_optimizer(self, optimizer: DistributedOptimizer) -> None:
        """Take the optimizer."""
        if not isinstance(optimizer, DistributedOptimizer):
            raise InputError(f"expected a DistributedOptimizer, got {type(optimizer).__name__}. Wrap the optimizer.")
        optimizer.bind(self._traveler)

    def elastic_run(self, func: Callable[..., Any]) -> Callable[..., Any]:
        """`func`, which trains one batch; it needs no change."""
        return func

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Around the loop; leaves the other processes at its end."""
        with self._traveler:
            yield


def create_elastic_controller(
    batch_size: int, dataset_size: int | None = None, num_epochs: int = 1, shuffle: bool = False
) -> PyTorchAllReduceController:
    """A controller, with the indices of this process's records if the size of the data is given."""
    indices = RecordIndexService(batch_size, num_epochs, dataset_size, shuffle) if dataset_size else None
    return PyTorchAllReduceController(indices)
