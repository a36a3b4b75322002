"""Parameters on servers: workers pull them, compute gradients, and push them; the servers apply the optimizer's rule.

Synchronous workers (`mode="sync"`) step together, as with `ddp`: a step is the mean of one push of each. Asynchronous
ones never wait for each other, unless `max_lead` is set: then no worker is more than so many pushes ahead of the
slowest. Worker processes also meet in a group, for metrics and checkpoints; gradients do not go through it.

Here are workers whose number is fixed; `elastic_ps` has asynchronous ones that come and go, and take what they train on
from the job's coordinator.

Rows of `trek.nn.Embedding` are pulled when they are looked up, dense parameters after every step, or after every
`pull_period` steps: in between a worker goes on with its own optimizer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import torch
from torch import nn

from trek.errors import ConfigError
from trek.ps.client import Client
from trek.ps.distinct_ids import sum_duplicates
from trek.ps.server_rows import ServerRows
from trek.registry import takes_fields_of
from trek.strategies.collectives import CollectiveStrategy
from trek.strategies.row_tables import RowStore
from trek.strategies.served_model import ServedModel, ServerOptions
from trek.strategies.sparse import gather_rows
from trek.world import World

_POLL_S = 0.002


class ParameterServers(CollectiveStrategy):
    """Workers of parameter servers."""

    name = "ps"

    @takes_fields_of(ServerOptions)
    def __init__(self, world: World, *, backend: str | None = None, timeout_s: float = 1800.0, **options: Any) -> None:
        super().__init__(world, backend=backend or "gloo", timeout_s=timeout_s)
        self._options = ServerOptions(**options)
        if self._options.version_tolerance is not None and world.is_distributed:
            raise ConfigError(
                "version_tolerance needs workers that can compute a batch anew: start them with trek.fit, trek.run, or "
                "as an experiment, with servers=1 or more."
            )
        self._served: ServedModel | None = None
        self._num_pushes = 0
        self._version = 0

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
        """Join the group, and connect to the servers."""
        options, source = self._options, f"worker/{self.world.rank:05d}"
        addresses = options.addresses()
        super().setup()
        client = partial(Client, addresses, secret=self.world.secret, source=source, patience_s=options.patience_s)
        self._served = ServedModel(client, mode=options.server_mode(self.world.size))
        self._num_pushes = self.client.progress(prefix=source).get(source, 0)

    def teardown(self) -> None:
        """Disconnect from servers and workers."""
        super().teardown()
        if self._served is not None:
            self._served.close()

    def open_rows(self) -> RowStore:
        """On the servers."""
        return ServerRows(self.client, is_leader=lambda: self.world.is_leader, prefetch=self.served.prefetch)

    def prefetch(self, wanted: Mapping[str, torch.Tensor]) -> None:
        """Pull rows ahead, but not if other workers change them before all step together."""
        if self.world.size == 1 or not self._options.is_sync:
            self.served.prefetch.begin(self.fixed_tables(wanted))

    def wrap_model(self, model: nn.Module) -> nn.Module:
        """Give the servers the leader's parameters, and take theirs."""
        if self.world.is_leader:
            self.served.offer()
        self.barrier()
        model = super().wrap_model(model)
        own = self.served.add(model)
        if self.world.is_leader:
            self.served.offer(own)
        self.barrier()
        self._pull(is_all=True)
        return model

    def loss_weight(self, num_samples: int, global_samples: int) -> float:
        """As with ddp: a synchronous step is the mean of all pushes, an asynchronous one that of its own samples."""
        return num_samples * self.world.size / global_samples

    def step(self, optimizer: torch.optim.Optimizer, apply: Callable[[torch.optim.Optimizer], None]) -> None:
        """Push the gradients, and pull what came of them."""
        self._num_pushes += 1
        self.served.push(optimizer, tables=self.tables, sequence=self._num_pushes)
        if self._options.max_lead is not None:
            self._wait_for_others(self._options.max_lead)
        if self._num_pushes % self._options.pull_period:
            apply(optimizer)
        else:
            self._version += 1
            self._pull(min_version=self._version if self._options.is_sync else 0)

    def clip_norm(self, parameters: Iterable[nn.Parameter], max_norm: float) -> torch.Tensor:
        """By the norm of the step: of the mean over workers if they are synchronous, else of this worker's push."""
        given = list(parameters)
        if not self._options.is_sync or self.world.size == 1:
            return super().clip_norm(given, max_norm)
        own = [one.grad for one in self.with_rows(given) if one.grad is not None]
        norm = nn.utils.get_total_norm(self._mean_gradients(given))
        for gradient in own:
            gradient.mul_(torch.clamp(max_norm / (norm + 1e-6), max=1.0))
        return norm

    def _mean_gradients(self, parameters: list[nn.Parameter]) -> list[torch.Tensor]:
        """The gradients of the step, as the servers will have them."""
        size = self.world.size
        dense = [p for p in parameters if p.numel() and p.requires_grad]
        zero = [p.grad.to_dense() if p.grad is not None else torch.zeros_like(p) for p in dense]
        means = [self.reduce(gradient) / size for gradient in zero]
        for module in self.tables.modules_of(parameters) if self.tables is not None else ():
            empty = torch.empty(0, dtype=torch.int64), torch.empty(0, module.spec.dim)
            ids, values = gather_rows(*(module.gradients() or empty), num_ranks=size, device=self.world.device)
            _, sums = sum_duplicates(ids.cpu().numpy(), values.cpu().numpy())
            means.append(torch.from_numpy(sums) / size)
        return means

    def figures(self) -> dict[str, float]:
        """Those of the servers."""
        return self.served.figures()

    def model_state(self, model: nn.Module) -> dict[str, torch.Tensor]:
        """The servers' values."""
        self.barrier()
        self._pull()
        return super().model_state(model)

    def load_model_state(self, model: nn.Module, state: dict[str, torch.Tensor]) -> None:
        """Load on every rank; `load_optimizer_state` gives the servers what belongs to an optimizer."""
        super().load_model_state(model, state)
        self.barrier()

    def own_optimizer_state(self, model: nn.Module | None, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """The servers' state."""
        if not self.world.is_leader:
            return super().own_optimizer_state(model, optimizer)
        with self.served.states_in(optimizer):
            return super().own_optimizer_state(model, optimizer)

    def load_optimizer_state(
        self, model: nn.Module | None, optimizer: torch.optim.Optimizer, state: dict[str, Any]
    ) -> None:
        """Give the servers the parameters of an optimizer and its state."""
        super().load_optimizer_state(model, optimizer, state)
        if self.world.is_leader:
            self.served.put(optimizer)
        if self._options.pull_period == 1:
            optimizer.state.clear()
        self.barrier()
        self._pull(is_all=True)

    def _pull(self, *, min_version: int = 0, is_all: bool = False) -> None:
        self.served.pull(min_version=min_version, is_all=is_all)
        self._version = max(self._version, self.served.version)

    def _wait_for_others(self, max_lead: int) -> None:
        """Let the slowest worker catch up: bounded staleness, without a push that is computed in vain."""
        deadline = time.monotonic() + self.timeout_s
        while True:
            done = self.client.progress(prefix="worker/")
            slowest = min((done.get(f"worker/{rank:05d}", 0) for rank in range(self.world.size)), default=0)
            if self._num_pushes - slowest <= max_lead or time.monotonic() > deadline:
                return
            time.sleep(_POLL_S)
