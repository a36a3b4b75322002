"""`elasticai_api.pytorch.controller` and `.optimizer`: data-parallel training of a loop for one process.

Over a `trek.Traveler`: the controller places the model and the optimizer, and gradients are averaged over processes.
Those are started by `trek launch --workers N`, torchrun, mpirun or srun. With `trek launch --workers 1:4` they may come
and go while the loop runs: each step is then of as many batches as there may be workers, whoever trains them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

import torch
from torch import nn

import trek
from trek.compat.elasticdl.data_shard_service import ElasticIndexService, RecordIndexService
from trek.errors import ConfigError, InputError, TrekError

_OF_THE_OPTIMIZER = ("add_param_group", "defaults", "load_state_dict", "param_groups", "state", "state_dict")
"""What a DistributedOptimizer has of the optimizer in it."""


class DistributedOptimizer(torch.optim.Optimizer):
    """An optimizer whose `step` first averages the gradients over all processes, once a controller has taken it.

    It is of the class of `optimizer` too, whose parameters, settings and state it has, so that schedulers take it. The
    global batch is always that of the number of workers the job began with, as with `fixed_global_batch_size`.
    """

    def __new__(cls, optimizer: torch.optim.Optimizer, fixed_global_batch_size: bool = False) -> Self:
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise InputError(f"an optimizer must be a torch.optim.Optimizer, got {type(optimizer).__name__}.")
        kind: Any = type(cls.__name__, (cls, type(optimizer)), {})
        made: Self = object.__new__(kind)
        return made

    def __init__(self, optimizer: torch.optim.Optimizer, fixed_global_batch_size: bool = False) -> None:
        self.__dict__.update({name: value for name, value in vars(optimizer).items() if name not in _OF_THE_OPTIMIZER})
        self.optimizer = optimizer
        self._traveler: trek.Traveler | None = None

    def __getattribute__(self, name: str) -> Any:
        return getattr(self.optimizer, name) if name in _OF_THE_OPTIMIZER else super().__getattribute__(name)

    def bind(self, traveler: trek.Traveler) -> None:
        """Step through `traveler` from now on."""
        self._traveler = traveler
        traveler.add_optimizer(self.optimizer)

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Average the gradients, step, clear the gradients."""
        if closure is not None:
            raise InputError("step takes no closure. Compute the loss and call backward before it.")
        if self._traveler is None:
            raise InputError("the optimizer is not part of a controller. Call controller.set_broadcast_optimizer.")
        self._traveler.step(self.optimizer)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients; those of a controller are cleared by `step`, once it has applied them."""
        if self._traveler is None:
            self.optimizer.zero_grad(set_to_none=set_to_none)


class PyTorchAllReduceController:
    """Keeps the replicas of a loop together."""

    def __init__(self, data_shard_service: RecordIndexService | None, traveler: trek.Traveler) -> None:
        self.data_shard_service = data_shard_service
        self._traveler = traveler

    def set_broadcast_model(self, model: nn.Module) -> None:
        """Take the model; every process starts with the leader's weights."""
        if not self._traveler.group.is_elastic:  # else a process that joins gets them from the others
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
    """A controller, with the indices of this process's records if the size of the data is given.

    Processes that come and go need them: a loop with other data has no way to train what another process left.
    """
    # `exact` gives a process the batch of each worker that is not there, one after the other, in the size that it has.
    traveler = trek.Traveler(show_progress=False, elastic="exact")
    try:
        return PyTorchAllReduceController(_indices(traveler, batch_size, num_epochs, dataset_size, shuffle), traveler)
    except TrekError:
        traveler.close()
        raise


def _indices(
    traveler: trek.Traveler, batch_size: int, num_epochs: int, dataset_size: int | None, shuffle: bool
) -> RecordIndexService | None:
    if traveler.group.is_elastic:
        if dataset_size is None:
            raise ConfigError(
                "processes that come and go need the number of records: pass dataset_size, and read those that "
                "controller.data_shard_service names. Or start a fixed number of processes, --workers N."
            )
        return ElasticIndexService(batch_size, num_epochs, dataset_size, shuffle, traveler=traveler)
    return RecordIndexService(batch_size, num_epochs, dataset_size, shuffle) if dataset_size is not None else None
