"""Strategy: how replicas of a model are kept in sync. One file per variant; the collectives of `solo` are identities.

Contracts: collectives are called by every rank in the same order, from the training thread. A loss is multiplied by
`loss_weight` before the backward pass, so that after `sync_gradients` the gradients are those of the mean over all
samples of the global batch, even if the ranks have unequal shares.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, Literal

import torch
from torch import nn

from trek.errors import ConfigError, InputError
from trek.ps.embedding import row_modules
from trek.strategies.naming import by_index, by_name, parameter_names
from trek.strategies.row_tables import RowStore, RowTables
from trek.world import World

ReduceOp = Literal["sum", "max", "min"]


class GroupBroken(Exception):
    """A peer is gone, and the collective that it was needed for did not complete here; it may have elsewhere."""


class Strategy(ABC):
    """Keeps the replicas of a World in sync."""

    name: ClassVar[str]
    is_broken = False
    """Whether the ranks are to form a new group. Collectives raise GroupBroken then; only `regrouping` does so."""

    @classmethod
    def check_workers(cls, num_workers: int) -> None:
        """Raise `ConfigError` if this strategy does not support this number of processes."""
        del num_workers  # most strategies support any number

    def __init__(self, world: World) -> None:
        self.world = world
        self.tables: RowTables | None = None
        """The tables of modules such as `trek.nn.Embedding`; None if no model has one."""

    def has_lost_peer(self, error: BaseException) -> bool:
        """Whether `error`, raised during a backward pass, means that the ranks are to form a new group."""
        del error
        return False

    def cause_of(self, error: BaseException) -> ConfigError | None:
        """What to raise from `error`, which ended the training, if it comes from how this strategy keeps parameters."""
        del error
        return None

    def setup(self) -> None:  # noqa: B027 - one process has nothing to set up
        """Connect to the other ranks."""

    def teardown(self) -> None:
        """Disconnect from the other ranks."""
        if self.tables is not None:
            self.tables.close()

    def wrap_model(self, model: nn.Module) -> nn.Module:
        """Move `model` to the device and make it a replica."""
        self.bind_tables(model)
        return model.to(self.world.device)

    def bind_tables(self, model: nn.Module) -> None:
        """Connect the modules of `model` whose rows live in tables."""
        if modules := list(row_modules(model)):
            self.tables = self.tables or RowTables(self.open_rows())
            self.tables.add(modules)

    def open_rows(self) -> RowStore:
        """Where the rows of tables are: in this process, for most strategies."""
        from trek.ps.local_rows import LocalRows

        return LocalRows()

    def prefetch(self, wanted: Mapping[str, torch.Tensor]) -> None:  # noqa: B027 - in this process there is nothing to do
        """These ids of tables are going to be looked up by the next batch."""

    def fixed_tables(self, wanted: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Those of `wanted` whose rows change by pushes alone: others may be removed by time."""
        known = self.tables.specs if self.tables is not None else {}
        if unknown := sorted(wanted.keys() - known.keys()):
            raise InputError(f"row_ids gave ids of {unknown[0]!r}, but the tables are: {', '.join(known) or 'none'}.")
        return {name: ids for name, ids in wanted.items() if not (known[name].max_age or known[name].max_rows)}

    def unwrap_model(self, model: nn.Module) -> nn.Module:
        """The user's module inside the wrapper."""
        return model

    @abstractmethod
    def loss_weight(self, num_samples: int, global_samples: int) -> float:
        """The factor of a local mean loss before the backward pass; 1.0 if all shares are equal."""

    def hold_gradients(self, model: nn.Module, *, held: bool) -> None:  # noqa: B027
        """Called before a forward pass: whether to defer syncing the gradients of its backward pass."""

    def sync_gradients(self, parameters: Iterable[nn.Parameter]) -> None:  # noqa: B027
        """Average gradients over ranks, unless the backward pass has done so."""

    def step(self, optimizer: torch.optim.Optimizer, apply: Callable[[torch.optim.Optimizer], None]) -> None:
        """Apply synced gradients; `apply` steps the optimizer in this process, as most strategies do."""
        apply(optimizer)
        if self.tables is not None:
            self.tables.step(optimizer)

    def sync_buffers(self, model: nn.Module) -> None:  # noqa: B027
        """Copy the leader's buffers (running statistics) to every rank, before they are used or saved."""

    def follow_restored(self, model: nn.Module) -> None:  # noqa: B027
        """The tensors of `model` were put back to what they were when this process held them before."""

    def buffer_sync(self, model: nn.Module) -> Callable[[], None] | None:
        """What to call after every training batch to keep buffers equal that forward passes read; None if nothing."""
        del model
        return None

    def clip_norm(self, parameters: Iterable[nn.Parameter], max_norm: float) -> torch.Tensor:
        """Clip synced gradients by their norm; returns the norm before clipping."""
        return nn.utils.clip_grad_norm_(self.with_rows(parameters), max_norm)

    def with_rows(self, parameters: Iterable[nn.Parameter]) -> list[torch.Tensor]:
        """`parameters`, and the rows used of the tables that some of them stand for."""
        given = list(parameters)
        return [*given, *self.tables.used_rows(given)] if self.tables is not None else [*given]

    @abstractmethod
    def reduce(self, tensor: torch.Tensor, op: ReduceOp = "sum") -> torch.Tensor:
        """The element-wise reduction over ranks, on every rank."""

    @abstractmethod
    def gather(self, value: Any) -> list[Any]:
        """Every rank's value, by rank, on every rank."""

    @abstractmethod
    def broadcast(self, value: Any) -> Any:
        """The leader's value, on every rank."""

    def figures(self) -> dict[str, float]:
        """What the leader records with every report, beside the pace of the run."""
        return {}

    def any(self, flag: bool) -> bool:
        """Whether the flag is set on any rank."""
        return flag

    def barrier(self) -> None:  # noqa: B027
        """Wait for every rank."""

    def held_gradients(self, parameters: Sequence[nn.Parameter]) -> dict[int, torch.Tensor]:
        """This rank's partly accumulated gradients, by the index of the parameter; their mean over ranks counts."""
        return {index: p.grad for index, p in enumerate(parameters) if p.grad is not None}

    def held_rows(self, parameters: Sequence[nn.Parameter]) -> dict[int, list[torch.Tensor]]:
        """The same of rows in tables, by the index of the parameter that stands for their table: ids and gradients."""
        return self.tables.held(parameters) if self.tables is not None else {}

    def load_rows(
        self, parameters: Sequence[nn.Parameter], held: Sequence[Mapping[int, Sequence[torch.Tensor]]]
    ) -> None:
        """Restore the `held_rows` of all ranks; if their number changed, the leader takes over those of all."""
        size, is_same = self.world.size, len(held) == self.world.size
        if self.tables is None or not (is_same or self.world.is_leader):
            return
        if is_same:
            self.tables.load_held(parameters, [held[self.world.rank]])
            return
        scale = size / len(held)
        scaled = [{index: (ids, values * scale) for index, (ids, values) in one.items()} for one in held]
        self.tables.load_held(parameters, scaled)

    def drop_rows(self) -> None:
        """Forget the gradients of rows since the last step."""
        if self.tables is not None:
            self.tables.drop()

    def averaged_gradients(self, parameters: Sequence[nn.Parameter]) -> dict[int, torch.Tensor]:
        """Partly accumulated gradients that are averaged over ranks already; called on all ranks together."""
        del parameters  # most strategies average when they step
        return {}

    def load_gradients(
        self,
        parameters: Sequence[nn.Parameter],
        *,
        held: Sequence[Mapping[int, torch.Tensor]],
        averaged: Mapping[int, torch.Tensor],
    ) -> None:
        """Restore the `held_gradients` of all ranks and the `averaged_gradients`, of any strategy.

        If the number of ranks changed, the leader takes over what all of them held.
        """
        size = self.world.size
        if len(held) == size:
            own = dict(held[self.world.rank])
        else:
            own = sum_gradients(held, scale=size / len(held)) if self.world.is_leader else {}
        for index, gradient in sum_gradients([own, averaged]).items():
            parameter = parameters[index]
            parameter.grad = gradient.to(parameter.device, parameter.dtype)

    def model_state(self, model: nn.Module) -> dict[str, torch.Tensor]:
        """The full state of the model, by the names in the user's module. Only the leader's is complete."""
        return self.unwrap_model(model).state_dict()

    def load_model_state(self, model: nn.Module, state: dict[str, torch.Tensor]) -> None:
        """Load the result of `model_state`, on every rank."""
        self.unwrap_model(model).load_state_dict(state)

    def optimizer_state(self, model: nn.Module | None, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """The full state of the optimizer, by the names of `model`'s parameters. Only the leader's is complete."""
        named = self.own_optimizer_state(model, optimizer)
        tables = self.tables.optimizer_state(optimizer) if self.tables is not None else {}
        return {**named, "tables": tables} if tables else named

    def own_optimizer_state(self, model: nn.Module | None, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """The part of `optimizer_state` that is in the optimizer itself."""
        state = optimizer.state_dict()
        return by_name(state, parameter_names(self.unwrap_model(model), optimizer)) if model else state

    def sharing(self) -> AbstractContextManager[None]:
        """While a worker gives its state to one that joins: states hold what that one cannot get elsewhere."""
        return nullcontext()

    def start_over(self) -> None:  # noqa: B027 - most strategies have everything in their processes
        """All workers were lost, and the run begins anew: drop what is left of it outside of this process."""

    def load_optimizer_state(
        self, model: nn.Module | None, optimizer: torch.optim.Optimizer, state: dict[str, Any]
    ) -> None:
        """Load the result of `optimizer_state` of any strategy, on every rank."""
        state = dict(state)
        tables = state.pop("tables", {})
        if model is not None:
            state = by_index(state, parameter_names(self.unwrap_model(model), optimizer))
        optimizer.load_state_dict(state)
        if self.tables is not None:
            self.tables.load_optimizer_state(optimizer, tables)


def sum_gradients(gradients: Iterable[Mapping[int, torch.Tensor]], *, scale: float = 1.0) -> dict[int, torch.Tensor]:
    """The sums of gradients by index, times `scale`."""
    total: dict[int, torch.Tensor] = {}
    for one in gradients:
        for index, gradient in one.items():
            total[index] = total[index] + gradient if index in total else gradient
    return total if scale == 1.0 else {index: gradient * scale for index, gradient in total.items()}
