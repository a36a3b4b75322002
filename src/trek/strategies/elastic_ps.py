"""Asynchronous workers of parameter servers that come and go.

Between two meetings no worker depends on another one: each trains what it leased, see `train.leased_loop`, and a push
is named by that work, not by the worker. So whoever repeats the work of a worker that died pushes nothing twice. The
group that workers form for a generation is for what they do at meetings: metrics, validation, checkpoints.

The servers have the parameters. A worker that joins gets from the others only what is in their processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn

from trek.errors import ConfigError
from trek.ps.client import Client
from trek.ps.server_rows import ServerRows
from trek.strategies.base import Strategy
from trek.strategies.regrouping import Regrouping
from trek.strategies.row_tables import RowStore
from trek.strategies.served_model import ServedModel, ServerOptions
from trek.world import World

MAX_PUSHES = 1 << 10
"""More than the optimizer steps of one batch."""


class ElasticServers(Regrouping):
    """One worker."""

    name = "ps"

    leases_work = True

    def __init__(
        self,
        world: World,
        *,
        is_exact: bool = False,
        backend: str | None = None,
        timeout_s: float = 1800.0,
        **options: Any,
    ) -> None:
        """`options` are fields of `ServerOptions`."""
        super().__init__(world, backend=backend or "gloo", timeout_s=timeout_s, shared_memory=False)
        self.options = ServerOptions(**options)
        if is_exact:
            raise ConfigError(
                "elastic='exact' is for strategy 'ddp': asynchronous pushes are applied as they come. Leave it out, or "
                "use strategy 'ddp'."
            )
        self._served: ServedModel | None = None
        self._rows: ServerRows | None = None
        self._work = ("", 0)
        self._num_pushes = 0
        """Of the present batch."""
        self.is_rejected = False
        """Whether a push of the present batch was too old, so that it must be computed anew."""
        self._num_steps = 0
        self._is_sharing = False

    @property
    def served(self) -> ServedModel:
        """The models on the servers."""
        assert self._served is not None, "setup connects to the servers"
        return self._served

    @property
    def client(self) -> Client:
        """The servers."""
        return self.served.client

    def setup(self) -> None:
        """Connect to the servers."""
        options = self.options
        client = partial(Client, options.addresses(), secret=self.world.secret, patience_s=options.patience_s)
        self._served = ServedModel(client, mode=options.server_mode(self.world.max_size))

    def teardown(self) -> None:
        """Disconnect from servers and workers."""
        super().teardown()
        if self._served is not None:
            self._served.close()

    # -- models

    def open_rows(self) -> RowStore:
        """On the servers."""
        self._rows = ServerRows(
            self.client,
            is_leader=lambda: self.world.is_leader,
            prefetch=self.served.prefetch,
            is_preparing=lambda: self.world.is_preparing,
        )
        return self._rows

    def prefetch(self, wanted: Mapping[str, torch.Tensor]) -> None:
        """Pull rows ahead; what others push meanwhile is seen one batch later."""
        self.served.prefetch.begin(self.fixed_tables(wanted))

    def wrap_model(self, model: nn.Module) -> nn.Module:
        """Place the model, and give the servers its parameters unless they have them: all workers built the same."""
        self.served.offer()
        model = Strategy.wrap_model(self, model)
        self.served.offer(self.served.add(model))
        return model

    def start_over(self) -> None:
        """Have the servers begin with what this worker has built."""
        if self.world.is_leader:
            self.served.put_all()
            if self._rows is not None:
                self._rows.clear()
        self.barrier()

    def refresh(self, *, is_all: bool) -> None:
        """Take over what changed on the servers, or everything."""
        self.served.pull(is_all=is_all)

    def settle(self) -> None:
        """Nobody is pushing now: have applied what waits for further pushes, and take over what came of everything."""
        if (self.options.grads_to_wait or 1) > 1:
            self.client.flush()
        self.served.prefetch.drop()
        self.served.pull()

    def buffer_sync(self, model: nn.Module) -> Callable[[], None] | None:
        """Nothing between meetings."""
        del model
        return None

    def sync_buffers(self, model: nn.Module) -> None:
        """Copy the leader's buffers, and take over what others have pushed."""
        super().sync_buffers(model)
        self.served.pull()

    # -- gradients

    def begin_work(self, source: str, *, number: int) -> None:
        """The next pushes belong to the `number`-th batch of the work called `source`."""
        self._work, self._num_pushes, self.is_rejected = (source, number), 0, False

    def loss_weight(self, num_samples: int, global_samples: int) -> float:
        """A batch is cut into as many shares as there may be workers, whoever is there."""
        return num_samples * self.world.max_size / global_samples

    def hold_gradients(self, model: nn.Module, *, held: bool) -> None:
        """There is nothing to hold."""

    def sync_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Every worker pushes its own."""

    def step(self, optimizer: torch.optim.Optimizer, apply: Callable[[torch.optim.Optimizer], None]) -> None:
        """Push the gradients, and pull what came of them and of those of others."""
        source, number = self._work
        assert source, "every batch belongs to some work"
        self._num_pushes += 1
        sequence = number * MAX_PUSHES + self._num_pushes
        pushed = self.served.push(optimizer, tables=self.tables, source=source, sequence=sequence)
        self.is_rejected = self.is_rejected or not pushed.accepted
        self._num_steps += 1
        if self._num_steps % self.options.pull_period and pushed.accepted:
            apply(optimizer)
        else:
            self.served.pull()

    def num_begun(self, source: str) -> int:
        """How many batches of some work have pushed something already; of the last one maybe not everything."""
        last = self.client.progress(prefix=source).get(source, 0)
        return last // MAX_PUSHES + 1 if last else 0

    # -- states

    @contextmanager
    def sharing(self) -> Iterator[None]:
        """What is on the servers need not be given to a worker that joins."""
        self._is_sharing = True
        try:
            yield
        finally:
            self._is_sharing = False

    def figures(self) -> dict[str, float]:
        """Those of the servers."""
        return self.served.figures()

    def model_state(self, model: nn.Module) -> dict[str, torch.Tensor]:
        """The servers' values; while sharing, what is not on servers."""
        if self._is_sharing:
            return dict(model.named_buffers())
        self.served.pull()
        return super().model_state(model)

    def load_model_state(self, model: nn.Module, state: dict[str, torch.Tensor]) -> None:
        """The leader gives the rows to the servers."""
        if self._is_sharing:
            model.load_state_dict(state, strict=False)
            return
        Strategy.load_model_state(self, model, state)
        self.barrier()

    def optimizer_state(self, model: nn.Module | None, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """The servers' state; while sharing, the settings of the optimizer alone."""
        if self._is_sharing:
            return super().own_optimizer_state(model, optimizer)
        return super().optimizer_state(model, optimizer)

    def own_optimizer_state(self, model: nn.Module | None, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """The servers' state, if this is the leader."""
        if not self.world.is_leader:
            return super().own_optimizer_state(model, optimizer)
        with self.served.states_in(optimizer):
            return super().own_optimizer_state(model, optimizer)

    def load_optimizer_state(
        self, model: nn.Module | None, optimizer: torch.optim.Optimizer, state: dict[str, Any]
    ) -> None:
        """The leader gives the parameters of an optimizer and its state to the servers."""
        super().load_optimizer_state(model, optimizer, state)
        if not self._is_sharing:
            if self.world.is_leader:
                self.served.put(optimizer)
            self.barrier()
        if self.options.pull_period == 1:
            optimizer.state.clear()
